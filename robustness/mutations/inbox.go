package main

// inboxes are the guards of a handle's subscriptions on a Cluster.
var inboxes = []mutation{
	{
		name: "a channel whose slot has moved is subscribed to anew", file: "internal/inbox/nodeconn.go",
		old: "c.conn, c.since = nil, time.Time{}\n\t\tb.attachSoon([]*channel{c})", new: "c.conn, c.since = nil, time.Time{}",
		packages: "./internal/inbox", tests: "TestSharded", servers: true,
	},
	{
		name: "a new subscription asks at once", file: "internal/inbox/nodeconn.go",
		old: "if exists {\n\t\tb.missed(c.key)", new: "if false {\n\t\tb.missed(c.key)",
		packages: "./internal/inbox", tests: "TestSharded", servers: true,
	},
	{
		name: "a channel that was refused is tried again", file: "internal/inbox/nodeconn.go",
		old: "c.conn, c.since = nil, time.Time{}\n\t\tb.refused(c)", new: "c.conn, c.since = nil, time.Time{}",
		packages: "./internal/inbox", tests: "TestSharded", servers: true,
	},
	{
		name: "the channels of a lost connection go to another one", file: "internal/inbox/nodeconn.go",
		old: "b.attachAfter(wait, all)", new: "_ = wait",
		packages: "./internal/inbox", tests: "TestSharded", servers: true,
	},
	{
		name: "a message of a Cluster stays in its shard", file: "luascripts/shared/inbox.lua",
		old: "if string.byte(receiver, 23) == 64 then", new: "if false then",
		packages: "./internal/tests/faults/mutex", tests: "TestHandOversStayInTheShard", servers: true,
	},
}
