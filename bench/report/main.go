// Command report reads the saved output of the benchmarks and says how leasehold
// compares: with floors that no design can beat, and with its peers.
//
//	go -C bench/report run . ../out/bench.txt ../out/peers.txt
//
// prints the rows of rows.txt: the figure of each, median and spread over the
// repetitions, what it was made of, and whether it reaches its bar.
//
//	-write DIR    also writes DIR/benchmarks.md and the pictures in DIR/bench
//	-lead DIR     writes the first section of DIR/benchmarks.md anew, and the README's table
//	-check        also demands the guard limits, and exits 1 where a row fails
//	-rows REGEXP  prints and checks only rows with a "module/question/name" that matches,
//	-skip REGEXP  and those that do not match this
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
)

func main() {
	write := flag.String("write", "", "`folder` to write the page and its pictures into")
	lead := flag.String("lead", "", "`folder` of the page whose first section is to be written anew")
	check := flag.Bool("check", false, "exit 1 where a row doesn't keep its guard limit")
	only := flag.String("rows", "", "print and check only rows with a \"module/question/name\" that matches this `regexp`")
	skip := flag.String("skip", "^$", "do not print and check rows that match this `regexp`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: report [-write folder] [-lead folder] [-check] [-rows regexp] [-skip regexp] output…")
		os.Exit(2)
	}
	if err := run(flag.Args(), *write, *lead, *check, regexp.MustCompile(*only), regexp.MustCompile(*skip)); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(files []string, write, lead string, check bool, only, skip *regexp.Regexp) error {
	rows, err := parseRows(rowsText)
	if err != nil {
		return err
	}
	in, err := ReadFiles(files)
	if err != nil {
		return err
	}
	Measure(in, rows)
	page := Page{in, rows}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r *Row) bool {
		label := r.Bench.Module + "/" + r.Question + "/" + r.Name
		return !only.MatchString(label) || skip.MatchString(label)
	})
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		behind := r.Behind
		if r.Err != nil {
			behind = r.Err.Error()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.What, behind, r, r.Bar.With(r.Unit), r.Verdict())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if write != "" {
		err = page.Write(write)
	}
	if lead != "" {
		err = errors.Join(err, page.WriteLead(lead))
	}
	if err != nil || !check {
		return err
	}
	failed := 0
	for _, r := range rows {
		if why := r.Failed(); why != "" {
			failed++
			fmt.Fprintln(os.Stderr, "FAILED", why)
		}
	}
	if failed > 0 || len(rows) == 0 {
		return fmt.Errorf("%d of %d rows failed", failed, len(rows))
	}
	fmt.Printf("all %d rows keep their guard limits\n", len(rows))
	return nil
}

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
