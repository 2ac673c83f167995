package main

import "time"

// The workers outnumber every cap, so that somebody always waits: a cap that is
// never under pressure proves nothing.
const workers = 6

type tenant struct {
	name string
	cap  int
}

var tenants = []tenant{{"acme", 2}, {"globex", 4}, {"initech", 1}}

// capOf is the semaphore's LimitFor: 0, meaning Config.Limit, for others.
func capOf(name string) int {
	for _, t := range tenants {
		if t.name == name {
			return t.cap
		}
	}
	return 0
}

const (
	// How long a killed worker's permits are missed, at most. The default of
	// 30 s suits real work better; here somebody is watching.
	permitTTL = 2 * time.Second
	// How often a waiting process sends its sign of life, and so asks whether
	// its turn has come (docs/guarantees.md, L1).
	looks = 1500 * time.Millisecond

	lockTTL = 1 * time.Second

	// A job takes from shortJob to longJob. Embedded, a script call costs some
	// 0.3 ms, and these make about 130 calls a second.
	shortJob = 60 * time.Millisecond
	longJob  = 160 * time.Millisecond

	victimAfter = 1800 * time.Millisecond // from the start: when the victim is chosen
	showFor     = 7500 * time.Millisecond // longer where a takeover is still awaited
	giveUp      = 10 * time.Second        // how much longer, at most
)

// The victim gets one job that is longer than the others', for the tenant with
// one permit, and is killed in the middle of it. By then its lease has been
// renewed (after a third of the TTL), so that what is measured is how a lease
// ends that was kept alive until then; and nobody else can run a job for that
// tenant before.
const (
	victimTenant = "initech"
	victimJob    = 1200 * time.Millisecond
	killAt       = 800 * time.Millisecond // into that job
)
