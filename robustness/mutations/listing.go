package main

const listings = "./internal/listing"

// listed are the guards of listings, which only read.
var listed = []mutation{
	cutOnServers("listing: a page begins at a score, not at a rank", "internal/listing/pages.go", listings, "Complete",
		`Key: key, Start: from, Stop: "+inf", ByScore: true, Count: count,`, `Key: key, Start: len(all), Stop: len(all) + int(count) - 1,`),
	cut("listing: a page begins at the last score, inclusive", "internal/listing/pages.go", listings, "OneExpiry",
		`last := score(some[len(some)-1].Score)`, `last := "(" + score(some[len(some)-1].Score)`),
	cut("listing: a waiter without a sign of life is not shown", "internal/listing/state.go", listings, "Expired",
		`if int64(sign) > s.At.UnixMilli() {`, `if int64(sign) > 0 {`),
	cut("listing: what was renewed meanwhile is read again", "internal/listing/state.go", listings, "RenewedDuring",
		`held[at[i]].Score = max(held[at[i]].Score, score)`, `_, _ = held[at[i]], score`),
	cut("listing: permits of one lease are one", "internal/listing/state.go", operators, "Simulation",
		`if i, more := at[m.first]; more {`, `if i, more := at[m.first]; more && i < 0 {`),
	cut("listing: of a family with a total, those of the key", "internal/listing/state.go", operators, "Simulation",
		"\t\ts.TotalInUse++\n\t\tif s.another(m) {\n\t\t\tcontinue\n\t\t}", "\t\ts.TotalInUse++"),
	cut("listing: a swallowed question for the time is no answer", "internal/listing/listing.go", listings, "Swallowed",
		"if err == nil && now.IsZero() {", "if false {"),
	cut("listing: a swallowed look at the permits, or for keys, is no answer", "internal/listing/listing.go", listings, "Swallowed",
		"if err == nil && list == nil {", "if false {"),
	cut("listing: a swallowed look at the queue is no answer to ls", "internal/listing/uses.go", listings, "Swallowed",
		"signs, err := replied(q.signs.Result())", "signs, err := q.signs.Result()"),
	cut("listing: a swallowed look at the holders is no answer to ls", "internal/listing/uses.go", listings, "Swallowed",
		"_, noHolders := replied(q.holder.Result())\n\t_, noQueue := replied(q.queue.Result())", "noHolders, noQueue := q.holder.Err(), q.queue.Err()"),
	cut("listing: a swallowed look at a guard is no answer to ls", "internal/listing/uses.go", listings, "Swallowed",
		`if q.fence.Err() == nil && q.fence.Val() == "" {`, "if false {"),
	cut("listing: a swallowed look at a guard is no answer", "internal/listing/value.go", listings, "Swallowed",
		`case err == nil && seen.Val() == "":`, "case false:"),
	cut("listing: a swallowed look at a cached value is no answer", "internal/listing/value.go", listings, "Swallowed",
		"_, err = replied(aside.Result())", "_ = aside"),
	cut("listing: a swallowed look at the lock is no answer", "internal/listing/state.go", listings, "Swallowed",
		"if err == nil && (before.Val() == nil || after.Val() == nil) {", "if false {"),
	cut("listing: what was not answered is asked again", "internal/listing/listing.go", listings, "LostReplies",
		`tries     = 4`, `tries     = 1`),
	cutOnServers("listing: each primary of a Cluster is asked", "internal/listing/listing.go", listings, "AllKeys",
		`return l.cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return fn(ctx, node) })`, `return fn(ctx, l.rdb)`),
}
