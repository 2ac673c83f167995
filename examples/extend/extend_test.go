package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/examples/internal/demo"
	"github.com/leasehold-go/leasehold/examples/internal/demotest"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestExtendedLeasesOutliveAnOutage(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Chdir(t.TempDir())
	*svgFile = "picture.svg"
	demotest.Check(t, program.Show)
	text, err := os.ReadFile(*svgFile)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
	}
	if n := strings.Count(string(text), "<polygon"); n < 6 {
		t.Errorf("the picture has %d areas; want one of each worker, and one of each that was killed", n)
	}
}

// good is runs without fault.
func good() []*record {
	start := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	runs := []*record{
		{name: "A", mode: modeRenew, lostAt: time.Second},
		{name: "B", mode: modeExtend, done: true},
		{name: "C", mode: modeRenew, killed: true, killAt: time.Second, heirAt: 1900 * time.Millisecond},
		{name: "D", mode: modeExtend, killed: true, killAt: time.Second, heirAt: 4 * time.Second},
	}
	for _, r := range runs {
		r.start = start
		left := 800 * time.Millisecond
		if r.mode == modeExtend {
			left = 2900 * time.Millisecond
		}
		for i := range 51 {
			r.samples = append(r.samples, demo.Event{At: start.Add(time.Duration(i) * sampleEvery), Left: left})
		}
	}
	return runs
}

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	if problems := verdict(good()); len(problems) > 0 {
		t.Fatalf("fault is found with good runs: %q", problems)
	}
	for name, spoil := range map[string]func(r []*record){
		"not told":             func(r []*record) { r[0].lostAt = 0 },
		"worked on":            func(r []*record) { r[0].done = true },
		"lost though extended": func(r []*record) { r[1].lostAt = time.Second },
		"taken too early":      func(r []*record) { r[2].heirAt = 1700 * time.Millisecond },
		"taken too late":       func(r []*record) { r[2].heirAt = 4 * time.Second },
		"not extended":         func(r []*record) { r[3].samples, r[3].heirAt = r[2].samples, r[2].heirAt },
		"no samples":           func(r []*record) { r[1].samples = nil },
	} {
		runs := good()
		spoil(runs)
		if len(verdict(runs)) == 0 {
			t.Errorf("%s: no fault is found", name)
		}
	}
}
