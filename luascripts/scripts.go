// Package luascripts holds the scripts that run inside Redis. The header of each
// script names its KEYS, its ARGV with units, its reply and its cost, and says which
// other actors may be at which step.
//
// A script is written in permits, totals, loads or guard. A line "-- include <path>" stands
// for a piece that several scripts share; pieces lie in the folders named shared.
// go generate writes the scripts out, with their pieces, into the folder complete.
// Those files are sent as they are, so that line 40 of an error of the server is
// line 40 of a file there; the server names a script by its SHA1:
//
//	sha1sum luascripts/complete/*/*.lua
//
// To add a script, write its file, run go generate, and add its function below.
package luascripts

import "embed"

//go:generate go run ./generate

//go:embed complete
var complete embed.FS

// script is a complete script, ready to be sent.
func script(name string) string {
	text, err := complete.ReadFile("complete/" + name + ".lua")
	if err != nil {
		panic(err) // a test calls each of the functions below
	}
	return string(text)
}

// The scripts of permits: semaphores and mutexes.

func PermitsEnter() string    { return script("permits/enter") }     // takes permits, or a place in the queue
func PermitsLeave() string    { return script("permits/leave") }     // gives permits back, or leaves the queue
func PermitsAsk() string      { return script("permits/ask") }       // brings waiters' sign of life; asks what became of them
func PermitsRenew() string    { return script("permits/renew") }     // extends a lease
func PermitsRevoke() string   { return script("permits/revoke") }    // takes a lease or a place away from its owner
func PermitsFate() string     { return script("permits/fate") }      // says what became of an attempt, of totals too
func PermitsSetLimit() string { return script("permits/set_limit") } // sets a key's limit

// The scripts of a lease that serves several turns of one process.

func PermitsLeaveTurns() string { return script("permits/leave_turns") } // gives a lock back and sets the fence to the last turn's token
func PermitsRenewCount() string { return script("permits/renew_count") } // extends a lease and counts the waiters

// The scripts of families with a total: semaphores whose keys share a number of permits.

func TotalsEnter() string    { return script("totals/enter") }     // takes permits, or a place in the queue
func TotalsLeave() string    { return script("totals/leave") }     // gives permits back, or leaves the queue
func TotalsAsk() string      { return script("totals/ask") }       // brings waiters' sign of life; goes on where a call stopped
func TotalsRenew() string    { return script("totals/renew") }     // extends a lease
func TotalsRevoke() string   { return script("totals/revoke") }    // takes a lease or a place away from its owner
func TotalsSetLimit() string { return script("totals/set_limit") } // sets a key's limit, or the total

// The scripts of loads: cached values.

func LoadsEnter() string      { return script("loads/enter") }      // takes a value, the lease to load it, or a place in the queue
func LoadsLeave() string      { return script("loads/leave") }      // gives the lease back without a result, or leaves the queue
func LoadsAsk() string        { return script("loads/ask") }        // brings waiters' sign of life; asks what became of their loads
func LoadsRenew() string      { return script("loads/renew") }      // extends a load's lease, or ends it where nobody waits
func LoadsPublish() string    { return script("loads/publish") }    // stores a result and tells the waiters
func LoadsInvalidate() string { return script("loads/invalidate") } // drops a value and the right to store of a running load
func LoadsPut() string        { return script("loads/put") }        // stores a value that no load has made
func LoadsRevoke() string     { return script("loads/revoke") }     // takes the right to load away from its owner
func LoadsFate() string       { return script("loads/fate") }       // says what became of an attempt
func LoadsInspect() string    { return script("loads/inspect") }    // tells what is known of a key

// GuardSet writes a value unless a holder with a newer token wrote before.
func GuardSet() string { return script("guard/set") }
