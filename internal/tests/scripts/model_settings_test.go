package scripts_test

import (
	"strconv"
)

// settingCall is a call that sets the limit.
type settingCall struct {
	key    string // in a family with a total; "": the total
	handle string
	limit  int
	number int64
}

// settingArrives is how long after its call a setting may arrive, in µs.
const settingArrives = 5_000_000

func (p *permitsModel) set(s settingCall) []int64 {
	p.own = s.handle
	last := p.noted - (p.notedUntil-p.alive.at("="))*1000 // both move when time is made to pass
	switch {
	case p.us >= s.number+settingArrives || s.number > p.us+settingArrives:
		return []int64{6, p.us, 0}
	case p.alive.has("=") && s.number < last && last <= p.us:
		return []int64{7, p.us, 0}
	}
	p.noted = min(s.number, p.us)
	p.notedUntil = (p.noted + settingArrives + 999) / 1000
	p.bury("=", p.notedUntil)
	if s.limit == 0 {
		p.word.clear()
	} else {
		p.word.text, p.word.set, p.word.until = strconv.Itoa(s.limit), true, immortal
	}
	p.tidy()
	if s.limit == 0 || p.used() > s.limit {
		p.recall()
	}
	return append([]int64{1, p.us, 0}, p.told...)
}
