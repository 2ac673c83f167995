package main

// picture is everything that the page shows. Durations are in ms.
type picture struct {
	Now       float64   `json:"now"` // seconds
	Epoch     int       `json:"epoch"`
	Mode      mode      `json:"mode"`
	Last      int       `json:"last"` // loads of the last expiry
	Expiries  int       `json:"expiries"`
	Loads     int       `json:"loads"`
	PerExpiry float64   `json:"per_expiry"`
	Running   int       `json:"running"` // loads, now
	Most      int       `json:"most"`    // at once
	Took      float64   `json:"took"`    // the last load
	Rate      int       `json:"rate"`    // answers in the last second
	P50       float64   `json:"p50"`     // since the switch
	P99       float64   `json:"p99"`
	Failed    string    `json:"failed,omitempty"`
	Processes []process `json:"processes"`
	Total     process   `json:"total"`
	Phases    []phase   `json:"phases"`
	Frames    []frame   `json:"frames"`
	Bars      []bar     `json:"bars"`
}

// process is a row of the table of processes.
type process struct {
	Rate int `json:"rate"`
	counts
}

// phase is a row of the table that compares the modes, each as it was last on.
type phase struct {
	Mode      mode    `json:"mode"`
	Name      string  `json:"name"`
	Requests  int     `json:"requests"`
	Expiries  int     `json:"expiries"`
	Loads     int     `json:"loads"`
	PerExpiry float64 `json:"per_expiry"`
	Most      int     `json:"most"`
	P50       float64 `json:"p50"`
	P99       float64 `json:"p99"`
}

// picture ends a frame and shows how things stand.
func (r *record) picture() picture {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, w := r.current, r.watch
	at := r.now()
	w.next(at, e.Mode, r.running)
	p := picture{
		Now: at.Seconds(), Epoch: e.Epoch, Mode: e.Mode,
		Expiries: e.expiries, Loads: e.loads, PerExpiry: e.perExpiry(),
		Running: r.running, Most: e.most, Took: millis(e.took),
		P50: millis(e.latency.quantile(0.5)), P99: millis(e.latency.quantile(0.99)),
		Failed: r.failed,
		Total:  process{counts: e.total()},
		// Sorted out under the lock, encoded after it.
		Frames: append([]frame{}, w.frames...),
		Bars:   append([]bar{}, w.bars...),
	}
	if n := len(w.bars); n > 0 && w.bars[n-1].Mode == e.Mode {
		p.Last = w.bars[n-1].Loads
	}
	for num := 1; num <= r.processes; num++ {
		row := process{w.rate(num), e.by[num]}
		p.Processes = append(p.Processes, row)
		p.Rate += row.Rate
	}
	p.Total.Rate = p.Rate
	for _, m := range modes {
		row := phase{Mode: m, Name: m.name()}
		if e := r.latest[m]; e != nil {
			row.Requests, row.Expiries, row.Loads, row.Most = e.total().answers(), e.expiries, e.loads, e.most
			row.PerExpiry = e.perExpiry()
			row.P50, row.P99 = millis(e.latency.quantile(0.5)), millis(e.latency.quantile(0.99))
		}
		p.Phases = append(p.Phases, row)
	}
	return p
}
