package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// print writes the figures as a table for a terminal.
func print(w io.Writer, figures []Figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\twhat\tmeasured\tfigure\tbar\t")
	for _, f := range figures {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", f.Row.Name, f.Row.What, f.Behind(), f.Ratio(), f.Row.Bar.with(f.Row.Unit), f.Verdict())
	}
	return table.Flush()
}

// markdown is a table of these cells, the first row of which are the headings.
func markdown(cells [][]string) string {
	var s strings.Builder
	for i, row := range cells {
		s.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			s.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return s.String()
}

// answers is the page's table of all rows that have a bar.
func answers(figures []Figure) string {
	cells := [][]string{{"row", "question", "figure", "bar", ""}}
	for _, f := range figures {
		if f.Row.Bar.Set() {
			verdict := f.Verdict()
			if verdict != "reached" {
				verdict = "**" + verdict + "**"
			}
			cells = append(cells, []string{"`" + f.Row.Name + "`", f.Row.What, f.Ratio(), f.Row.Bar.with(f.Row.Unit), verdict})
		}
	}
	return markdown(cells)
}

// besides is a table of some questions' rows that have no bar and were measured.
func besides(figures []Figure, questions []string) string {
	cells := [][]string{{"beside it", "figure"}}
	for _, f := range figures {
		if slices.Contains(questions, f.Row.Question) && !f.Row.Bar.Set() && f.Err == nil {
			cells = append(cells, []string{f.Row.What, f.Ratio()})
		}
	}
	if len(cells) == 1 {
		return ""
	}
	return markdown(cells)
}
