package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// origin is the slow thing behind the cache, a database or another service. The
// more loads run at once, the longer each takes: so do the things that it stands
// for, and that is how a stampede brings them down.
type origin struct {
	takes time.Duration // alone
	rec   *record
	url   string
	srv   *http.Server
}

func startOrigin(takes time.Duration, rec *record) (*origin, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{takes: takes, rec: rec, url: "http://" + listener.Addr().String()}
	o.srv = &http.Server{Handler: http.HandlerFunc(o.answer), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = o.srv.Serve(listener) }() // ends by close; else the loads fail, which is counted
	return o, nil
}

func (o *origin) close() { _ = o.srv.Close() }

func (o *origin) answer(w http.ResponseWriter, r *http.Request) {
	epoch, _ := strconv.Atoi(r.FormValue("epoch"))
	process, _ := strconv.Atoi(r.FormValue("process"))
	number, end := o.rec.loadBegins(epoch, process)
	done := o.work(r.Context())
	// Before the answer is sent: whatever it leads to comes later than this.
	end(done)
	if done {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(value{number, fmt.Sprintf("the front page, made by load %d", number)})
	}
}

// work takes its time: a part of it at a time, each as slow as the crowd makes
// it then. False: nobody wants the result any more.
func (o *origin) work(ctx context.Context) (done bool) {
	const parts = 10
	for range parts {
		slow := 1 + crowding*float64(o.rec.loadsNow()-1)
		select {
		case <-time.After(time.Duration(float64(o.takes) / parts * slow)):
		case <-ctx.Done():
			return false
		}
	}
	return true
}
