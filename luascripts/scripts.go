// Package luascripts holds the scripts that run inside Redis. The header of each
// script names its KEYS, its ARGV with units, its reply and its cost, and says which
// other actors may be at which step.
//
// These words mean the same in all headers:
//
//   - In KEYS, "as in keys": all keys that the piece keys of the folder names, in its order.
//   - In ARGV, void_from: the server's time (µs) from which on the call does nothing, 0 = never.
//     copies_until: the server's time (ms) until which a copy of the member's enter may still
//     arrive, 0 = none can; a tombstone refuses it until then.
//   - In replies, numbers are integers; now is the server's time (µs), remaining the time that is
//     left of a lease (ms). more = 1, or (0, 0, 0) after outcomes: the call stopped at a bound, and
//     its caller sends it again at once (an ask for an enter). outcomes: for each waiter of the
//     caller's handle that the call granted to or refused (seq, term ms or -limit, token or 0).
//   - Errors are replies, too: REVOKED <reason>, if the attempt neither holds nor waits because it
//     was revoked; FENCESPENT, if no greater token is left (see issue_token): nothing was taken.
//   - A script that gives back, renews or asks begins its writes with one that is allowed when
//     memory has run out: Redis checks the memory limit only until the first write of a script.
//
// A script is written in permits, totals, quorum, loads or guard. A line "-- include <path>, <path>"
// stands for pieces that several scripts share; they lie in the folders named shared. The whole
// scripts are put together when a program starts. The server names a script by its SHA1 and a
// line of the whole text; the command print shows that text:
//
//	go run ./luascripts/print f739cd1e
//
// The file hashes has the SHA1 of each whole script, so that nobody changes one unknowingly. To
// add a script, write its file, add its function below, and write the list anew:
//
//	go run ./luascripts/print > luascripts/hashes
package luascripts

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed */*.lua */shared/*.lua
var tree embed.FS

// Names returns the names of all scripts, such as "permits/enter", in order.
func Names() (names []string) {
	_ = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".lua" && !isPiece(name) {
			names = append(names, strings.TrimSuffix(name, ".lua"))
		}
		return err
	})
	return names
}

const includes = "-- include "

// Whole returns the whole text of a script or piece, with all that it includes. It panics if
// there is none of that name.
func Whole(name string) string {
	text, err := tree.ReadFile(name + ".lua")
	if err != nil {
		panic("leasehold: " + err.Error()) // a test calls each of the functions below
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		blanks, pieces, found := strings.Cut(line, includes)
		if !found {
			out.WriteString(line)
			continue
		}
		for piece := range strings.SplitSeq(strings.TrimSpace(pieces), ", ") {
			for line := range strings.Lines("-- from " + piece + ".lua\n" + Whole(piece)) {
				if line != "\n" {
					line = blanks + line
				}
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// isPiece reports whether a file holds a piece that scripts include, and no script.
func isPiece(name string) bool { return path.Base(path.Dir(name)) == "shared" }

// The scripts of permits: semaphores and mutexes.

func PermitsEnter() string    { return Whole("permits/enter") }     // takes permits, or a place in the queue
func PermitsLeave() string    { return Whole("permits/leave") }     // gives permits back, or leaves the queue
func PermitsAsk() string      { return Whole("permits/ask") }       // brings waiters' sign of life; asks what became of them
func PermitsRenew() string    { return Whole("permits/renew") }     // extends a lease
func PermitsRevoke() string   { return Whole("permits/revoke") }    // takes a lease or a place away from its owner
func PermitsSetLimit() string { return Whole("permits/set_limit") } // sets a key's limit

// The scripts of a lease that serves several turns of one process.

func PermitsLeaveTurns() string { return Whole("permits/leave_turns") } // gives a lock back and sets the fence to the last turn's token
func PermitsRenewCount() string { return Whole("permits/renew_count") } // extends a lease and counts the waiters
func PermitsRenewKeep() string  { return Whole("permits/renew_keep") }  // extends a lease that is kept, and asks whether it was recalled

// The scripts of a lock for one run of a job, which is done once.

func PermitsEnterOnce() string  { return Whole("permits/enter_once") }  // takes a lock, or a place in the queue, unless the run is complete
func PermitsComplete() string   { return Whole("permits/complete") }    // gives a lock back and stores that the run is complete
func PermitsIsComplete() string { return Whole("permits/is_complete") } // says whether the run is complete

// The scripts of families with a total: semaphores whose keys share a number of permits.

func TotalsEnter() string    { return Whole("totals/enter") }     // takes permits, or a place in the queue
func TotalsLeave() string    { return Whole("totals/leave") }     // gives permits back, or leaves the queue
func TotalsAsk() string      { return Whole("totals/ask") }       // brings waiters' sign of life; goes on where a call stopped
func TotalsRenew() string    { return Whole("totals/renew") }     // extends a lease
func TotalsRevoke() string   { return Whole("totals/revoke") }    // takes a lease or a place away from its owner
func TotalsSetLimit() string { return Whole("totals/set_limit") } // sets a key's limit, or the total

// The scripts of quorums: each server has one vote for a lock.

func QuorumEnter() string  { return Whole("quorum/enter") }  // asks for the vote, or a place in the queue; renews
func QuorumLeave() string  { return Whole("quorum/leave") }  // gives the vote back, or leaves the queue
func QuorumYield() string  { return Whole("quorum/yield") }  // lets an earlier ticket have the vote
func QuorumLook() string   { return Whole("quorum/look") }   // says whether the server votes; ends its abstention
func QuorumRevoke() string { return Whole("quorum/revoke") } // takes a vote or a place away from its owner

// The scripts of loads: cached values.

func LoadsEnter() string      { return Whole("loads/enter") }      // takes a value, the lease to load it, or a place in the queue
func LoadsLeave() string      { return Whole("loads/leave") }      // gives the lease back without a result, or leaves the queue
func LoadsAsk() string        { return Whole("loads/ask") }        // brings waiters' sign of life; asks what became of their loads
func LoadsRenew() string      { return Whole("loads/renew") }      // extends a load's lease, or ends it where nobody waits
func LoadsPublish() string    { return Whole("loads/publish") }    // stores a result and tells the waiters
func LoadsInvalidate() string { return Whole("loads/invalidate") } // drops a value and the right to store of a running load
func LoadsPut() string        { return Whole("loads/put") }        // stores a value that no load has made
func LoadsRevoke() string     { return Whole("loads/revoke") }     // takes the right to load away from its owner
func LoadsInspect() string    { return Whole("loads/inspect") }    // tells what is known of a key

// The scripts of copies that processes serve from their own memory, under read leases.

func LoadsNearRead() string  { return Whole("loads/near_read") }  // reads a value, and registers the reader
func LoadsNearTell() string  { return Whole("loads/near_tell") }  // tells readers once more to drop their copies
func LoadsNearLeave() string { return Whole("loads/near_leave") } // takes registrations back, and acknowledges a drop

// GuardSet writes a value unless a holder with a newer token wrote before.
func GuardSet() string { return Whole("guard/set") }
