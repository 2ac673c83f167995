package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
)

// childArg as the first argument makes this program a server process. The second
// one is a job; the server's URL is in REDIS_URL.
const childArg = "serve-hotkey"

// job is what a server process is to do.
type job struct {
	Process  int           `json:"process"`
	Name     string        `json:"name"`   // of the run, in the cache
	Origin   string        `json:"origin"` // URL
	TTL      time.Duration `json:"ttl"`
	StaleFor time.Duration `json:"stale_for"`
}

func childMain(arg string) int {
	var j job
	if err := json.Unmarshal([]byte(arg), &j); err != nil {
		fmt.Fprintln(os.Stderr, "hotkey: bad job:", err)
		return 2
	}
	if err := serve(untilStdinEnds(), j); err != nil {
		fmt.Fprintf(os.Stderr, "hotkey: process %d: %v\n", j.Process, err)
		return 1
	}
	return 0
}

// untilStdinEnds: the parent closed it, or died, in which case the kernel did.
func untilStdinEnds() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		time.Sleep(4 * time.Second)
		os.Exit(3) // whatever it hangs on, it does not outlive its parent by much
	}()
	return ctx
}

// serve runs a server process until ctx ends. What it prints is its address.
func serve(ctx context.Context, j job) error {
	rdb, err := demo.Client(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	defer rdb.Close()
	all, err := caches(rdb, j.Name, j.TTL, j.StaleFor)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := &service{job: j, caches: all}
	s.current.Store(&order{Mode: off})
	srv := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(listener) }()
	fmt.Println(listener.Addr())

	select {
	case err = <-ended: // it never does so well
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	errs := []error{err}
	for _, c := range all {
		errs = append(errs, c.close(closing)) // whoever waits there is answered
	}
	return errors.Join(append(errs, srv.Shutdown(closing))...)
}
