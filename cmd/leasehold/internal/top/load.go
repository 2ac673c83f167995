package top

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/internal/listing"
)

const (
	leastScan = 5 * time.Second // between two looks for keys that came or went
	scanShare = 200             // a look may take that part of the time, at most
	pollAll   = 500             // up to so many keys are polled whatever is shown
	patience  = 20 * time.Second
)

// loaded is what a look at Redis brought.
type loaded struct {
	uses    []listing.Use // all that is known; of a poll, what was asked for
	scanned bool
	took    time.Duration
	state   *listing.State // of the key that is open
	err     error
}

// tick asks for the next look.
type tick struct{}

func (m model) later() command {
	return func() any {
		select {
		case <-time.After(m.every):
		case <-m.ctx.Done():
		}
		return tick{}
	}
}

// load looks at Redis: for all keys where it is time for that, else at those that
// are shown.
func (m model) load() command {
	scan := time.Since(m.scanned) >= max(leastScan, scanShare*m.took)
	var some []listing.Resource
	if len(m.known) <= pollAll {
		for _, u := range m.known {
			some = append(some, u.Resource)
		}
	} else {
		rows := m.rows()
		for _, u := range rows[min(m.from, len(rows)):min(m.from+m.height, len(rows))] {
			some = append(some, u.Resource)
		}
	}
	open := m.open
	return func() any {
		ctx, cancel := context.WithTimeout(m.ctx, patience)
		defer cancel()
		began := time.Now()
		var err error
		if scan {
			some, err = m.list.Resources(ctx)
		}
		if err != nil {
			return loaded{err: err}
		}
		x := loaded{scanned: scan}
		if x.uses, err = m.list.Uses(ctx, some); err != nil {
			return loaded{err: err}
		}
		x.took = time.Since(began)
		if open != nil {
			s, err := m.list.State(ctx, *open, listing.Bounds{Entries: 5000})
			if err != nil && !errors.Is(err, listing.ErrTooMany) {
				return loaded{err: err}
			}
			x.state = &s
		}
		return x
	}
}

// take puts what was loaded into the model.
func (m model) take(x loaded) model {
	m.err = x.err
	if x.err != nil {
		return m
	}
	if x.scanned {
		m.known, m.scanned, m.took = x.uses, time.Now(), x.took
	} else {
		fresh := make(map[listing.Resource]listing.Use, len(x.uses))
		for _, u := range x.uses {
			fresh[u.Resource] = u
		}
		m.known = slices.Clone(m.known)
		for i, u := range m.known {
			if now, ok := fresh[u.Resource]; ok {
				m.known[i] = now
			}
		}
	}
	m.ready = true
	if x.state != nil && m.open != nil && x.state.Resource == *m.open {
		m.state = x.state
	}
	return m.settled()
}
