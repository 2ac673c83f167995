package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// Bench is one benchmark: the last part of the package that the output names ("bench" or "peers"), and its name
// without "Benchmark" and without the number of processors.
type Bench struct{ Module, Name string }

func (b Bench) String() string { return b.Module + ": Benchmark" + b.Name }

// Input is all that was read. What is on one line of output was measured in turns, so
// the metrics of a line may be compared.
type Input struct {
	Lines map[Bench][]map[string]float64 // the metrics of each repetition

	config map[string][]string // "cpu", "server", …: the different values
}

// ReadFiles reads the saved outputs of go test -bench. Units stay as they were printed. A line that is cut off
// is an error; so is, by its row, what a run that ended early did not print.
func ReadFiles(names []string) (*Input, error) {
	in := &Input{Lines: map[Bench][]map[string]float64{}, config: map[string][]string{}}
	lines := benchfmt.Files{Paths: names}
	for lines.Scan() {
		switch rec := lines.Result().(type) {
		case *benchfmt.Result:
			in.add(rec)
		case *benchfmt.SyntaxError:
			return nil, rec
		}
	}
	return in, lines.Err()
}

func (in *Input) add(rec *benchfmt.Result) {
	base, parts := rec.Name.Parts()
	b := Bench{path.Base(rec.GetConfig("pkg")), string(base)}
	for _, p := range parts {
		if p[0] == '/' {
			b.Name += string(p)
		} else {
			in.note("processors", string(p[1:]))
		}
	}
	metrics := map[string]float64{}
	for _, v := range rec.Values {
		if v.OrigUnit != "" {
			v.Value, v.Unit = v.OrigValue, v.OrigUnit
		}
		metrics[v.Unit] = v.Value
	}
	in.Lines[b] = append(in.Lines[b], metrics)
	for _, c := range rec.Config {
		if c.File {
			in.note(c.Key, string(c.Value))
		}
	}
}

func (in *Input) note(key, value string) {
	if !slices.Contains(in.config[key], value) {
		in.config[key] = append(in.config[key], value)
	}
}

// Config is what the output says of the machine under that key, or nothing.
func (in *Input) Config(key string) string { return strings.Join(in.config[key], "; ") }

var errMissing = errors.New("missing from the input")

// Column is a metric of all repetitions. It is an error if one has it not.
func (in *Input) Column(b Bench, metric string) (values []float64, err error) {
	if len(in.Lines[b]) == 0 {
		return nil, fmt.Errorf("%v: %w", b, errMissing)
	}
	for i, metrics := range in.Lines[b] {
		v, ok := metrics[metric]
		if !ok {
			return nil, fmt.Errorf("%v, repetition %d: metric %s: %w", b, i+1, metric, errMissing)
		}
		values = append(values, v)
	}
	return values, nil
}
