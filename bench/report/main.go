// Command report reads the saved output of the benchmarks and says how leasehold
// compares: with floors that no design can beat, and with its peers.
//
//	go -C bench/report run . ../out/bench.txt ../out/peers.txt
//
// prints the rows of rows.txt: the figure of each, median and spread over the
// repetitions, what it was made of, and whether it reaches its bar.
//
//	-write DIR   also writes DIR/benchmarks.md and the pictures in DIR/bench
//	-lead DIR    writes the first section of DIR/benchmarks.md anew, and the README's table
//	-check       also demands the guard limits, and exits 1 where a row fails
//	-rows LIST   only these rows: modules (bench, peers), questions or names of
//	             rows, with commas between; "-" before one leaves it out
package main

import (
	"flag"
	"fmt"
	"os"
	"text/tabwriter"
)

func main() {
	write := flag.String("write", "", "`folder` to write the page and its pictures into")
	lead := flag.String("lead", "", "`folder` of the page whose first section is to be written anew")
	check := flag.Bool("check", false, "exit 1 where a row doesn't keep its guard limit")
	list := flag.String("rows", "", "only these rows: `modules, questions or names`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: report [-write folder] [-lead folder] [-check] [-rows list] output…")
		os.Exit(2)
	}
	if err := run(flag.Args(), *write, *lead, *check, *list); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(files []string, write, lead string, check bool, list string) error {
	rows, err := Select(Rows, list)
	if err != nil {
		return err
	}
	in, err := ReadFiles(files)
	if err != nil {
		return err
	}
	page := Page{in, Figures(in, rows)}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, f := range page.figures {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Row.Name, f.Row.What, f.Behind(), f, f.Row.Bar.With(f.Row.Unit), f.Verdict())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if write != "" {
		if err := page.Write(write); err != nil {
			return err
		}
	}
	if lead != "" {
		if err := page.WriteLead(lead); err != nil {
			return err
		}
	}
	if !check {
		return nil
	}
	failed := Check(page.figures)
	for _, line := range failed {
		fmt.Fprintln(os.Stderr, "FAILED", line)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d rows failed", len(failed), len(page.figures))
	}
	fmt.Printf("all %d rows keep their guard limits\n", len(page.figures))
	return nil
}
