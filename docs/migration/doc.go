// Package migration is the code of the pages beside it: each of them is compiled
// here, and the releases of a rollout are run against each other.
package migration
