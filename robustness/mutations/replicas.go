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
		name: "replicas: they are counted", file: "internal/call/confirm.go",
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
		name: "replicas: an enter is granted once they confirmed it", file: "internal/lease/confirm.go",
		old: "if err := c.Unconfirmed(); err != nil {", new: "if err := c.Unconfirmed(); false {",
		packages: replicaTests, tests: "NothingIsGranted", servers: true,
	},
	{
		name: "replicas: a grant by message is confirmed first", file: "internal/lease/acquire.go",
		old: "w.m.replicated() && !v.Confirmed", new: "false",
		packages: replicaTests, tests: "NothingIsHandedOver", servers: true,
	},
	{
		name: "replicas: a waiter that was revoked does not enter again", file: "internal/lease/acquire.go",
		old:      "	if err := w.endIfRevoked(ctx); err != nil {\n		return err\n	}\n	w.abandon()",
		new:      "	w.abandon()",
		packages: replicaTests, tests: "RevokedBefore", servers: true,
	},
	{
		name: "replicas: a renewal that they did not confirm moves no deadline", file: "internal/lease/lease.go",
		old: "err = c.Unconfirmed()", new: "_ = c.Unconfirmed()",
		packages: replicaTests, tests: "UnconfirmedRenewal", servers: true,
	},
	{
		name: "replicas: an Extend that they did not confirm is an error", file: "internal/lease/release.go",
		old: "return c.Unconfirmed() // no second try", new: "return nil // no second try",
		packages: replicaTests, tests: "UnconfirmedExtend", servers: true,
	},
	{
		name: "replicas: WAIT ends before the client stops reading", file: "internal/lease/confirm.go",
		old: "client.LongestWait() < longest", new: "false",
		packages: replicaTests, tests: "Config|DefaultWait", servers: true,
	},
}
