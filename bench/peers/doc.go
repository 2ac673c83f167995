// Package peers measures other libraries beside leasehold, in the manner of
// package bench: one server, the same pools, competitors that take turns, and
// figures that mean something as ratios within one line.
//
//	go test -run '^$' -bench 'Lone|Hit' -count 5 .
//	go test -run '^$' -bench 'Many|Contended|Stampede' -benchtime 20x -count 5 .
//	go test -run '^$' -bench 'Idle|LongLoad' -benchtime 1x -count 5 .
//
// TestRecipes runs what has broken locks against other libraries and against leasehold, and prints what happened:
//
//	go test -count=1 -v -run TestRecipes .
//
// Each library is used as its documentation recommends; locks_test.go and
// pairs_test.go say with which options. It is a module of its own, so that
// nobody who uses leasehold depends on its peers. It needs a real server: see
// scripts/servers.sh.
package peers
