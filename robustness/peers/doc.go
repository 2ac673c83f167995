// Package peers runs recipes that have broken locks against other libraries and against leasehold, each as it
// comes, with a plain go-redis client, and prints what happened:
//
//	go test -count=1 -v -run TestRecipes .
//
// It is a module of its own, so that nobody who uses leasehold depends on its
// peers. It needs a real server: see scripts/servers.sh.
package peers
