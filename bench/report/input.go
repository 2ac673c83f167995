package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// The modules whose output is read: benchmarks of the same name in both are told
// apart by the package that the output names.
const (
	ours  = "bench"
	peers = "peers"
)

// Bench is one benchmark: its module and its name without "Benchmark" and
// without the number of processors.
type Bench struct{ Module, Name string }

func (b Bench) String() string { return b.Module + ": Benchmark" + b.Name }

// Line is one line of output: one repetition of a benchmark. What is on one line
// was measured in turns, so it may be compared.
type Line struct {
	Bench   Bench
	Iters   int
	Metrics map[string]float64
}

// Input is all that was read.
type Input struct {
	Lines    []Line
	Warnings []string // what looked like a benchmark's line and is none

	config map[string][]string // "cpu", "server", …: the different values
}

// ReadFiles reads the saved outputs of go test -bench.
func ReadFiles(names []string) (*Input, error) {
	in := new(Input)
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		err = errors.Join(in.Read(name, f), f.Close())
		if err != nil {
			return nil, err
		}
	}
	return in, nil
}

// Read adds the output that r has. Units stay as they were printed. A run that
// failed is refused as a whole: what it printed until then may be half of it.
func (in *Input) Read(name string, r io.Reader) error {
	text, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if line, failed := failure(string(text)); failed {
		return fmt.Errorf("%s: the run failed: %s", name, line)
	}
	lines := benchfmt.NewReader(strings.NewReader(string(text)), name)
	for lines.Scan() {
		switch rec := lines.Result().(type) {
		case *benchfmt.Result:
			in.add(rec)
		case *benchfmt.SyntaxError:
			in.Warnings = append(in.Warnings, rec.Error())
		}
	}
	return lines.Err()
}

// failure finds the line by which go test says that a run failed.
func failure(text string) (line string, found bool) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, sign := range []string{"FAIL", "--- FAIL", "panic:", "fatal error:"} {
			if strings.HasPrefix(line, sign) {
				return line, true
			}
		}
		// What a benchmark was called stands before what became of it.
		if strings.HasPrefix(line, "Benchmark") && strings.Contains(line, "--- FAIL") {
			return line, true
		}
	}
	return "", false
}

func (in *Input) add(rec *benchfmt.Result) {
	line := Line{Iters: rec.Iters, Metrics: map[string]float64{}}
	line.Bench.Module = path.Base(rec.GetConfig("pkg"))
	base, parts := rec.Name.Parts()
	line.Bench.Name = string(base)
	for _, p := range parts {
		if p[0] == '/' {
			line.Bench.Name += string(p)
		} else {
			in.note("processors", string(p[1:]))
		}
	}
	for _, v := range rec.Values {
		if v.OrigUnit != "" {
			v.Value, v.Unit = v.OrigValue, v.OrigUnit
		}
		line.Metrics[v.Unit] = v.Value
	}
	in.Lines = append(in.Lines, line)
	for _, c := range rec.Config {
		if c.File {
			in.note(c.Key, string(c.Value))
		}
	}
}

// note keeps what the output says of the machine.
func (in *Input) note(key, value string) {
	if in.config == nil {
		in.config = map[string][]string{}
	}
	if !slices.Contains(in.config[key], value) {
		in.config[key] = append(in.config[key], value)
	}
}

// Of is the repetitions of b.
func (in *Input) Of(b Bench) (all []Line) {
	for _, l := range in.Lines {
		if l.Bench == b {
			all = append(all, l)
		}
	}
	return all
}

// Sizes is the sub-benchmarks of b that are called after a size, "keys=100", the
// smallest first.
func (in *Input) Sizes(b Bench) (all []Bench) {
	for _, l := range in.Lines {
		if l.Bench.Module == b.Module && strings.HasPrefix(l.Bench.Name, b.Name+"/") && size(l.Bench) > 0 && !slices.Contains(all, l.Bench) {
			all = append(all, l.Bench)
		}
	}
	slices.SortStableFunc(all, func(a, b Bench) int { return cmp.Compare(size(a), size(b)) })
	return all
}

// size is what a sub-benchmark is called after, or 0.
func size(b Bench) int {
	_, digits, _ := strings.Cut(b.Name, "=")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// Config is what the output says of the machine under that key, or nothing.
func (in *Input) Config(key string) string { return strings.Join(in.config[key], "; ") }
