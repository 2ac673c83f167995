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

// greedyClients is how many requests a greedy tenant has under way all the time.
const greedyClients = 60

var tenants = func() []string {
	all := []string{"greedy-1", "greedy-2"}
	for i := range 8 {
		all = append(all, fmt.Sprintf("modest-%d", i+1))
	}
	return all
}()

func isModest(tenant string) bool { return tenant[0] == 'm' }

// load sends the requests of all tenants.
type load struct {
	web  *http.Client
	urls []string
	took func(tenant string, sent time.Time, a answer, status int)
	wg   sync.WaitGroup
	stop context.CancelFunc
}

func startLoad(ctx context.Context, urls []string, took func(string, time.Time, answer, int)) *load {
	ctx, stop := context.WithCancel(ctx)
	l := &load{urls: urls, took: took, stop: stop, web: &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: 1000},
	}}
	for _, tenant := range tenants {
		clients, pause := greedyClients, time.Duration(0)
		if isModest(tenant) {
			clients, pause = 1, 400*time.Millisecond
		}
		for range clients {
			l.wg.Go(func() { l.client(ctx, tenant, pause) })
		}
	}
	return l
}

// client sends one request after the other, with a pause between them.
func (l *load) client(ctx context.Context, tenant string, pause time.Duration) {
	for ctx.Err() == nil {
		if pause > 0 {
			wait(ctx, pause/2+rand.N(pause))
		}
		sent := time.Now()
		a, status, err := l.send(ctx, tenant)
		switch {
		case err != nil:
			wait(ctx, 50*time.Millisecond) // the service is starting, or ending
		case status == http.StatusOK:
			l.took(tenant, sent, a, status)
		default:
			l.took(tenant, sent, a, status)
			wait(ctx, 100*time.Millisecond) // a client that minds Retry-After would wait longer
		}
	}
}

func (l *load) send(ctx context.Context, tenant string) (a answer, status int, err error) {
	url := l.urls[rand.IntN(len(l.urls))] + "/work?tenant=" + tenant
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return a, 0, err
	}
	res, err := l.web.Do(req)
	if err != nil {
		return a, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusOK {
		err = json.NewDecoder(res.Body).Decode(&a)
	}
	_, _ = io.Copy(io.Discard, res.Body) // so that the connection is used again
	return a, res.StatusCode, err
}

func (l *load) close() {
	l.stop()
	l.wg.Wait()
	l.web.CloseIdleConnections()
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
