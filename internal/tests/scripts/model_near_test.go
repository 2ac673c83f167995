package scripts_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/leasehold-go/leasehold/internal/loads"
)

// told is the part of a reply that lists the readers.
type told struct {
	lasts []int64
	names []string
}

// after is the whole reply, with what comes before the readers.
func (r told) after(ints ...int64) outcome {
	if len(r.names) == 0 {
		return outcome{ints: ints}
	}
	return outcome{ints: append(append(ints, 0), r.lasts...), text: r.names}
}

// longestRead bounds a read lease, whatever a clock that went back makes of its score.
const longestRead = 60001

// tellReaders lists the readers, those whose leases last longest first, and tells them.
func (f *flightModel) tellReaders(ack loads.Acknowledge) (r told) {
	all := f.near.order(f.now+1, forever)
	slices.Reverse(all)
	for _, m := range all {
		if m == ack.Handle {
			continue
		}
		r.names = append(r.names, m)
		r.lasts = append(r.lasts, min(longestRead, f.near.at(m)-f.now))
		if ack.Number != "" {
			f.tellReader(m, ack)
		}
	}
	return r
}

func (f *flightModel) tellReader(m string, ack loads.Acknowledge) {
	f.publish(m, fmt.Sprintf("N %s %d %s %s", ack.Number, f.near.at(m), ack.Handle, f.near.key))
}

func (f *flightModel) nearRead(m string, lasts int64, known string) outcome {
	if !f.value.set {
		return outcome{ints: []int64{f.us, 0}}
	}
	score := f.now + 1 + lasts
	if f.near.has(m) {
		score = max(score, f.near.at(m)+1)
	}
	f.near.put(m, score)
	f.near.keep(score)
	if f.us%32 == 0 {
		f.near.drop(f.near.order(-forever, f.now)...)
	}
	if known != "" && head(f.value.text) == known {
		return outcome{ints: []int64{f.us, 2}}
	}
	return outcome{ints: []int64{f.us, 1}, text: []string{f.value.text}}
}

func (f *flightModel) nearTell(ack loads.Acknowledge, readers []string) outcome {
	ints := []int64{f.us}
	for _, m := range readers {
		if f.near.at(m) > f.now {
			ints = append(ints, 1)
			f.tellReader(m, ack)
		} else {
			ints = append(ints, 0)
		}
	}
	return outcome{ints: ints}
}

func (f *flightModel) nearLeave(m string, score string, ack loads.Acknowledge) outcome {
	if f.near.has(m) && (score == "" || strconv.FormatInt(f.near.at(m), 10) == score) {
		f.near.drop(m)
	}
	if ack.Number != "" {
		f.publish(ack.Handle, "A "+m+" "+ack.Number)
	}
	return outcome{ints: []int64{f.us}}
}

// acknowledge is nobody who listens, or one of the handles.
func (m *loadMachine) acknowledge(t *rapid.T) loads.Acknowledge {
	i := rapid.IntRange(0, len(modelHandles)).Draw(t, "listens")
	if i == len(modelHandles) {
		return loads.Acknowledge{}
	}
	m.told++
	return loads.Acknowledge{Number: strconv.Itoa(m.told), Handle: modelHandles[i]}
}

func (m *loadMachine) handle(t *rapid.T) string {
	return rapid.SampledFrom(modelHandles).Draw(t, "handle")
}

func (m *loadMachine) nearRead(t *rapid.T) {
	if m.full {
		t.Skip("it is not registered where memory has run out")
	}
	reader := m.handle(t)
	lasts := time.Duration(rapid.IntRange(20, 60_000).Draw(t, "lasts")) * time.Millisecond
	known := ""
	if rapid.Bool().Draw(t, "known") {
		known = head(m.f.value.text)
	}
	names := m.res.names
	c := loads.NearRead(names.Part("value"), loads.Near(names), reader, lasts, known)
	got := m.call(fmt.Sprintf("near read of %s for %v, known %q", reader[:1], lasts, known), c, func() outcome {
		return m.f.nearRead(reader, lasts.Milliseconds(), known)
	})
	must(loads.ReadNearRead(got.ints, got.text))(m)
}

func (m *loadMachine) nearTell(t *rapid.T) {
	ack := m.acknowledge(t)
	readers := rapid.SliceOfN(rapid.SampledFrom(modelHandles), 1, 3).Draw(t, "readers")
	if ack.Number == "" {
		t.Skip("nobody listens")
	}
	c := loads.NearTell(loads.Near(m.res.names), ack, readers)
	got := m.call(fmt.Sprintf("near tell %q, %+v", readers, ack), c, func() outcome {
		return m.f.nearTell(ack, readers)
	})
	must(loads.ReadNearTell(got.ints, readers))(m)
}

// nearLeave names the score of the registration, or another one, or none.
func (m *loadMachine) nearLeave(t *rapid.T) {
	reader, ack := m.handle(t), m.acknowledge(t)
	near := m.f.near
	score := ""
	if ack.Number != "" {
		score = strconv.FormatInt(near.at(reader)+int64(rapid.IntRange(-1, 0).Draw(t, "earlier")), 10)
	}
	c := loads.NearLeave(reader, []loads.Drop{{Acknowledge: ack, Score: score, Near: near.key}})
	m.call(fmt.Sprintf("near leave of %s, %+v, score %q", reader[:1], ack, score), c, func() outcome {
		return m.f.nearLeave(reader, score, ack)
	})
}
