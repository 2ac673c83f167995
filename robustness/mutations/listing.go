package main

const listings = "./internal/listing"

// listed are the guards of listings, which only read.
var listed = []mutation{
	{
		name: "listing: a page begins at a score, not at a rank", file: "internal/listing/pages.go",
		old:      `Key: key, Start: from, Stop: "+inf", ByScore: true, Count: count,`,
		new:      `Key: key, Start: len(all), Stop: len(all) + int(count) - 1,`,
		packages: listings, tests: "Complete", servers: true,
	},
	{
		name: "listing: a page begins at the last score, inclusive", file: "internal/listing/pages.go",
		old:      `last := score(some[len(some)-1].Score)`,
		new:      `last := "(" + score(some[len(some)-1].Score)`,
		packages: listings, tests: "OneExpiry",
	},
	{
		name: "listing: a waiter without a sign of life is not shown", file: "internal/listing/state.go",
		old:      `if int64(signs[i]) > s.At.UnixMilli() {`,
		new:      `if int64(signs[i]) > 0 {`,
		packages: listings, tests: "Expired",
	},
	{
		name: "listing: what was renewed meanwhile is read again", file: "internal/listing/state.go",
		old: `held[at].Score = max(held[at].Score, scores[i])`, new: `_, _ = held[at], scores[i]`,
		packages: listings, tests: "RenewedDuring",
	},
	{
		name: "listing: permits of one lease are one", file: "internal/listing/state.go",
		old: `if i, more := at[m.first]; more {`, new: `if i, more := at[m.first]; more && i < 0 {`,
		packages: operators, tests: "Simulation",
	},
	{
		name: "listing: of a family with a total, those of the key", file: "internal/listing/state.go",
		old: "\t\ts.TotalInUse++\n\t\tif s.another(m) {\n\t\t\tcontinue\n\t\t}", new: "\t\ts.TotalInUse++",
		packages: operators, tests: "Simulation",
	},
	{
		name: "listing: what was not answered is asked again", file: "internal/listing/listing.go",
		old:      `tries     = 4`,
		new:      `tries     = 1`,
		packages: listings, tests: "LostReplies",
	},
	{
		name: "listing: each primary of a Cluster is asked", file: "internal/listing/listing.go",
		old:      `return l.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return fn(ctx, node) })`,
		new:      `return fn(ctx, l.rdb)`,
		packages: listings, tests: "AllKeys", servers: true,
	},
}
