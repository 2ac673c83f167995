package main

const replicaTests = "./internal/tests/replicas"

// replicas are the guards of grants that replicas confirm.
var replicas = []mutation{
	{
		name: "replicas: a marker is written for WAIT", file: "internal/call/confirm.go",
		old: `redis.NewStatusCmd(ctx, "set", marker, "", "px", ms)`, new: `redis.NewStatusCmd(ctx, "ping")`,
		packages: replicaTests, tests: "RepeatedEnter", servers: true,
	},
	{
		name: "replicas: the marker is kept where memory has run out", file: "internal/call/confirm.go",
		old: "case kept.Val() == 1:", new: "case false:",
		packages: replicaTests, tests: "WithoutMemory", servers: true,
	},
	{
		name: "replicas: they are counted", file: "internal/call/call.go",
		old: "int(c.confirmed) >= c.Confirm.Replicas", new: "int(c.confirmed) >= 1",
		packages: replicaTests, tests: "ReplicasAreCounted", servers: true,
	},
	{
		name: "replicas: on a Cluster the node of the key confirms", file: "internal/call/confirm.go",
		old: "if c.cluster != nil {", new: "if false {",
		packages: replicaTests, tests: "NodeOfTheKey", servers: true,
	},
	{
		name: "replicas: a queue of their own", file: "internal/call/call.go",
		old: "return Way{c.Node, c.Confirm}", new: "return Way{Node: c.Node}",
		packages: replicaTests, tests: "ManyCallers|NobodyElseWaits", servers: true,
	},
	{
		name: "replicas: an enter is granted once they confirmed it", file: "internal/lease/attempt.go",
		old: "r.TooFew, r.Confirmed = missing != nil, missing == nil && c.Confirm == a.m.confirm", new: "r.TooFew, r.Confirmed = false, true",
		packages: replicaTests, tests: "NothingIsGranted", servers: true,
	},
	{
		name: "replicas: a grant by message is confirmed first", file: "internal/lease/life_held.go",
		old: "if a.confirms = a.confirms && !r.Confirmed; a.confirms {", new: "if a.confirms = false; a.confirms {",
		packages: replicaTests, tests: "NothingIsHandedOver", servers: true,
	},
	{
		name: "replicas: a waiter that was revoked does not enter again", file: "internal/lease/life_held.go",
		old: "return a.lostUntaken(tellRevoked, byRevoker, now)", new: "return a.lostUntaken(tellAgain, byRevoker, now)",
		packages: replicaTests, tests: "RevokedBefore", servers: true,
	},
	{
		name: "replicas: a renewal that they did not confirm moves no deadline", file: "internal/lease/life_held.go",
		old: "case !r.TooFew:", new: "case true:",
		packages: replicaTests, tests: "UnconfirmedRenewal", servers: true,
	},
	{
		name: "replicas: an Extend that they did not confirm is an error", file: "internal/lease/lease.go",
		old: "return r, r.Err // if too few", new: "return r, nil // if too few",
		packages: replicaTests, tests: "UnconfirmedExtend", servers: true,
	},
	{
		name: "replicas: WAIT ends before the client stops reading", file: "internal/lease/config.go",
		old: "client.LongestWait() < longest", new: "false",
		packages: replicaTests, tests: "Config|DefaultWait", servers: true,
	},
}
