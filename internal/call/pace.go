package call

import "time"

const (
	// minPipelineBytes is how long pipelines are at first, and again after a failure. Some
	// servers answer before they have read everything; over a connection without buffers they
	// would then hang. miniredis over net.Pipe is one: it reads 4096 bytes at a time.
	minPipelineBytes = 4000
	// minConfirmedBytes is the same for calls that replicas confirm. All calls of a pipeline
	// share one WAIT, and miniredis has none.
	minConfirmedBytes = 64000
	maxPipelineBytes  = 1 << 20
	// shortestOver is the age at which a shortest trip is forgotten, or up to twice as much.
	shortestOver = 10 * time.Second
	// quickTrip is the floor of the shortest trip. On the loopback a trip is so short that a
	// full pipeline never came close to it, and pipelines would not grow.
	quickTrip = time.Millisecond
	// quickRenewals is the floor for a trip with renewals. Nobody waits for those.
	quickRenewals = 8 * time.Millisecond
)

// A pace says how long the pipelines to one server may be, and how long its round trips take.
//
// Over a network with long round trips the number of calls per second is the length of the pipelines, so they grow as
// long as a full one takes little longer than the shortest trip. When they take much longer, the server or the network
// is the bound: longer pipelines would only make the next call wait.
type pace struct {
	least    int           // the length that pipelines begin with, in bytes
	bytes    int           // the length that a pipeline may have now
	average  time.Duration // of the trips that were answered, the last one with a weight of an eighth
	shortest [2]time.Duration
	turnsAt  time.Time // when shortest[0] becomes shortest[1]
}

// answered notes that a trip ended with an answer at the time now.
func (p *pace) answered(now time.Time, t trip) {
	took := now.Sub(t.began)
	if p.average += (took - p.average) / 8; p.turnsAt.IsZero() {
		p.average = took
	}
	if now.After(p.turnsAt) {
		p.shortest = [2]time.Duration{took, p.shortest[0]}
		if p.turnsAt.IsZero() {
			p.shortest[1] = took
		}
		p.turnsAt = now.Add(shortestOver)
	}
	p.shortest[0] = min(p.shortest[0], took)
	shortest := min(p.shortest[0], p.shortest[1])
	if shortest <= 0 {
		return // a trip that takes no time is one inside testing/synctest
	}
	usual := max(shortest, quickTrip)
	if t.renews {
		usual = max(shortest, quickRenewals)
	}
	switch {
	case t.full && took < 2*usual:
		p.bytes = min(2*p.bytes, max(p.least, maxPipelineBytes))
	case t.full && took > 4*usual:
		p.bytes = max(p.bytes/2, p.least)
	}
}

// quick says that the way to the server is so short that several short pipelines at once are quicker than a long one.
func (p *pace) quick() bool { return min(p.shortest[0], p.shortest[1]) < quickTrip }

// failed notes that a trip had no answer. Its calls are sent again in short pipelines: a long
// one may have been the reason.
func (p *pace) failed() { p.bytes = p.least }
