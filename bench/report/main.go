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
	"regexp"
	"slices"
	"text/tabwriter"
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
