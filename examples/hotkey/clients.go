package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// crowd is the clients: each asks one process for the hot key, again and again,
// and thinks in between.
type crowd struct {
	rec   *record
	each  int      // clients of each process
	addrs []string // of the processes
	http  http.Client
}

func newCrowd(rec *record, each int, addrs []string) *crowd {
	return &crowd{
		rec: rec, each: each, addrs: addrs,
		http: http.Client{
			Timeout:   giveUp,
			Transport: &http.Transport{MaxIdleConnsPerHost: each},
		},
	}
}

// run lets them ask until end is closed, and returns when all have their answers.
// ctx ends the requests themselves.
func (c *crowd) run(ctx context.Context, end <-chan struct{}) {
	var all sync.WaitGroup
	for i, addr := range c.addrs {
		for range c.each {
			all.Go(func() { c.client(ctx, end, i+1, "http://"+addr+"/item") })
		}
	}
	all.Wait()
	c.http.CloseIdleConnections()
}

func (c *crowd) client(ctx context.Context, end <-chan struct{}, process int, url string) {
	pause := rand.N(think) // they don't all come at once
	for {
		select {
		case <-end:
			return
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		sent := c.rec.now()
		a, err := c.ask(ctx, url)
		switch {
		case ctx.Err() != nil:
			return // nobody waited for the answer
		case err != nil:
			c.rec.refused(process, err)
		default:
			c.rec.answered(process, sent, a)
		}
		pause = think/2 + rand.N(think)
	}
}

func (c *crowd) ask(ctx context.Context, url string) (a reply, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return a, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 500))
		return a, fmt.Errorf("%s: %s", res.Status, text)
	}
	return a, json.NewDecoder(res.Body).Decode(&a)
}
