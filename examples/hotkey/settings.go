package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"
)

const (
	// think is how long a client waits between two requests, on average: with
	// the 120 clients of the default some 400 requests a second.
	think = 250 * time.Millisecond

	// giveUp bounds a client's request. Without protection many clients make a
	// very slow origin.
	giveUp = 30 * time.Second

	// crowding is by which part each further load at the same time slows the
	// origin down: it is what makes a stampede hurt.
	crowding = 0.03
)

// settings is what the flags say.
type settings struct {
	addr      string
	processes int
	clients   int // of each process
	ttl       time.Duration
	stale     time.Duration
	load      time.Duration
	headless  bool
	phase     time.Duration
}

func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	f := flag.NewFlagSet("hotkey", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&s.addr, "addr", "127.0.0.1:8090", "`address` of the page; port 0 takes any that is free")
	f.IntVar(&s.processes, "processes", 3, "server processes")
	f.IntVar(&s.clients, "clients", 40, "clients of each process, which ask for the key some four times a second")
	f.DurationVar(&s.ttl, "ttl", time.Second, "how long a cached value is fresh")
	f.DurationVar(&s.stale, "stale", time.Second, "how long after its TTL a value is served while it is rebuilt, where that is switched on")
	f.DurationVar(&s.load, "load", 250*time.Millisecond, "how long the origin takes for one load alone; others at the same time make it slower")
	f.BoolVar(&s.headless, "headless", false, "no page: run with and without protection, print a table, and fail where protection did not hold")
	f.DurationVar(&s.phase, "phase", 4*time.Second, "with -headless: how long each of the three phases lasts")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	var errs []error
	if f.NArg() > 0 {
		errs = append(errs, fmt.Errorf("takes flags only, not %q", f.Arg(0)))
	}
	between := func(name string, v, low, high int) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("-%s is %d; want %d to %d", name, v, low, high))
		}
	}
	lasts := func(name string, v, low, high time.Duration) {
		if v < low || v > high {
			errs = append(errs, fmt.Errorf("-%s is %v; want %v to %v", name, v, low, high))
		}
	}
	between("processes", s.processes, 1, 16)
	between("clients", s.clients, 1, 200)
	lasts("ttl", s.ttl, 200*time.Millisecond, time.Minute)
	lasts("stale", s.stale, time.Millisecond, time.Minute)
	lasts("load", s.load, 10*time.Millisecond, 2*time.Second)
	lasts("phase", s.phase, time.Second, 5*time.Minute)
	err := errors.Join(errs...)
	if err != nil {
		fmt.Fprintln(out, err)
	}
	return s, err
}

// timeLimit ends a headless run that hangs, whatever the reason.
func (s settings) timeLimit() time.Duration { return 30*time.Second + 4*s.phase }
