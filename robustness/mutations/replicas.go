package main

const replicaTests = "./internal/tests/replicas"

// replicas are the guards of grants that replicas confirm.
var replicas = []mutation{
	cutOnServers("replicas: a marker is written for WAIT", "internal/call/confirm.go", replicaTests, "RepeatedEnter",
		`redis.NewStatusCmd(ctx, "set", marker, "", "px", ms)`, `redis.NewStatusCmd(ctx, "ping")`),
	cutOnServers("replicas: the marker is kept where memory has run out", "internal/call/confirm.go", replicaTests, "WithoutMemory",
		"case kept.Val() == 1:", "case false:"),
	cutOnServers("replicas: what they could not be asked for is given back", "internal/call/confirm.go", replicaTests, "RefusedConfirmation",
		"outcome{err: noReply(failed)}", "outcome{err: failed}"),
	cutOnServers("replicas: they are counted", "internal/call/call.go", replicaTests, "ReplicasAreCounted",
		"int(c.confirmed) >= c.Confirm.Replicas", "int(c.confirmed) >= 1"),
	cutOnServers("replicas: on a Cluster the node of the key confirms", "internal/call/confirm.go", replicaTests, "NodeOfTheKey",
		"if c.cluster == nil {", "if true {"),
	cutOnServers("replicas: of a node that a slot moves to", "internal/call/confirm.go", replicaTests, "SlotMovesUnderConfirmed",
		`words[0] == "ASK"`, `words[0] == ""`),
	cut("replicas: what they confirm is counted apart", "internal/call/confirm.go", callTests, "TestConfirmedCalls",
		"firstConfirmed+position(min(n, 1))", "firstOfPipeline+position(min(n, 1))"),
	cutOnServers("replicas: a queue of their own", "internal/call/queue.go", replicaTests, "ManyCallers|NobodyElseWaits",
		"if one.Confirm == (Confirm{}) {", "if true {"),
	cutOnServers("replicas: an enter is granted once they confirmed it", "internal/lease/attempt.go", replicaTests, "NothingIsGranted",
		"r.TooFew, r.Confirmed = missing != nil, missing == nil && c.Confirm == a.m.confirm", "r.TooFew, r.Confirmed = false, true"),
	cut("replicas: a grant by message is confirmed first", "internal/life/held.go", lifeTests, "TestExplorer",
		"a.Confirms = a.Confirms && !r.Confirmed || brief", "a.Confirms = brief"),
	cut("replicas: a waiter that was revoked does not enter again", "internal/life/held.go", lifeTests, "TestExplorer",
		"return a.lostUntaken(TellRevoked, ByRevoker, now)", "return a.lostUntaken(TellAgain, ByRevoker, now)"),
	cut("replicas: a renewal that they did not confirm moves no deadline", "internal/life/held.go", lifeTests, "TestExplorer",
		"case !r.TooFew:", "case true:"),
	cutOnServers("replicas: an Extend that they did not confirm is an error", "internal/lease/lease.go", replicaTests, "UnconfirmedExtend",
		"return r, r.Err // if too few", "return r, nil // if too few"),
	cutOnServers("replicas: WAIT ends before the client stops reading", "internal/lease/config.go", replicaTests, "Config|DefaultWait",
		"client.LongestWait() < longest", "false"),
}
