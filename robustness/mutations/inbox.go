package main

// inboxes are the guards of a handle's subscriptions.
var inboxes = []mutation{
	cut("a subscription that is used again is kept", "internal/inbox/inbox.go", "./internal/inbox", "UsedAgain",
		"if b.users == 0 {\n\t\t\tb.end()", "if true {\n\t\t\tb.end()"),
	cut("a channel that is used again is kept", "internal/inbox/sharded.go", "./internal/inbox", "UsedAgain",
		"if c.users == 0 && b.channels[key] == c {", "if b.channels[key] == c {"),
	cut("a connection that is used again is kept", "internal/inbox/sharded.go", "./internal/inbox", "UsedAgain",
		"if len(n.channels) == 0 {", "if true {"),
	cutOnServers("a channel whose slot has moved is subscribed to anew", "internal/inbox/nodeconn.go", "./internal/inbox", "TestSharded",
		"c.conn, c.since = nil, time.Time{}\n\t\tb.attachSoon([]*channel{c})", "c.conn, c.since = nil, time.Time{}"),
	cutOnServers("a new subscription asks at once", "internal/inbox/nodeconn.go", "./internal/inbox", "TestSharded",
		"if exists {\n\t\tb.missed(c.key)", "if false {\n\t\tb.missed(c.key)"),
	cutOnServers("a channel that was refused is tried again", "internal/inbox/nodeconn.go", "./internal/inbox", "TestSharded",
		"c.conn, c.since = nil, time.Time{}\n\t\tb.refused(c)", "c.conn, c.since = nil, time.Time{}"),
	cutOnServers("the channels of a lost connection go to another one", "internal/inbox/nodeconn.go", "./internal/inbox", "TestSharded",
		"b.attachAfter(wait, all)", "_ = wait"),
	cut("a subscription whose goroutine a hook ends is followed by another", "internal/inbox/inbox.go", "./internal/inbox", "TestHookThatEnds",
		"if !ended {", "if false {"),
	cut("a hook that breaks off as a subscription connects again ends no process", "internal/inbox/inbox.go", "./internal/inbox", "TestHookThatEnds",
		"\t\t\t_ = recover()\n", ""),
	cut("a subscription that a hook broke off is not closed", "internal/inbox/inbox.go", "./internal/inbox", "TestHookThatEnds",
		"\t\t\tunhook()\n", "\t\t\t_, _ = unhook(), ps.Close()\n"),
	cutOnServers("a lost connection may mean a failover", "internal/inbox/nodeconn.go", "./internal/inbox", "TestHookThatEnds",
		"\t\tn.b.cluster.Notice(err)\n", ""),
	cutOnServers("a message of a Cluster stays in its shard", "luascripts/shared/inbox.lua", lockFaults, "TestHandOversStayInTheShard",
		"if string.byte(receiver, 23) == 64 then", "if false then"),
}
