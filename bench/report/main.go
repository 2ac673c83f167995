// Command report reads the saved output of the benchmarks and says how leasehold
// compares: with floors that no design can beat, and with its peers.
//
//	go -C bench/report run . ../out/bench.txt ../out/peers.txt
//
// prints a table of all rows: the figure that a row asks for, median and spread
// over the repetitions, what it was made of, and whether it reaches its bar.
//
//	-write DIR   also writes DIR/benchmarks.md and the pictures in DIR/bench
//	-lead DIR    writes the first section of DIR/benchmarks.md anew, and nothing else
//	-check       also demands the guard limits, and exits 1 where a row fails
//	-rows LIST   only these rows: modules (bench, peers), questions or names of
//	             rows, with commas between; "-" before one leaves it out
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	write := flag.String("write", "", "`folder` to write the page and its pictures into")
	lead := flag.String("lead", "", "`folder` of the page whose first section is to be written anew")
	check := flag.Bool("check", false, "exit 1 where a row doesn't keep its guard limit")
	list := flag.String("rows", "", "only these rows: `modules, questions or names`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: report [-write folder] [-check] [-rows list] output…")
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
	for _, w := range in.Warnings {
		fmt.Fprintln(os.Stderr, "report:", w)
	}
	figures := Figures(in, rows)
	if err := print(os.Stdout, figures); err != nil {
		return err
	}
	if write != "" {
		if err := WritePage(write, in, figures); err != nil {
			return err
		}
	}
	if lead != "" {
		if err := WriteLead(lead, in, figures); err != nil {
			return err
		}
	}
	if !check {
		return nil
	}
	failed := Check(figures)
	for _, line := range failed {
		fmt.Fprintln(os.Stderr, "FAILED", line)
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d rows failed", len(failed), len(figures))
	}
	fmt.Printf("all %d rows keep their guard limits\n", len(figures))
	return nil
}
