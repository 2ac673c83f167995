package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// The page's first section, which can be measured and written by itself.
//
//go:embed lead.md.tmpl
var leadText string

// leads reports whether a row is of the first section, and of which of its tables.
func leads(r Row, table string) bool {
	ofCalls := r.Question == "calls" || strings.HasPrefix(r.Name, "server-calls") || r.Name == "many-calls"
	if table == "calls" {
		return ofCalls
	}
	return r.Question == table && !ofCalls
}

// only is the page with the figures of one table of the first section.
func (p Page) only(table string) []Figure {
	var some []Figure
	for _, f := range p.figures {
		if leads(f.Row, table) {
			some = append(some, f)
		}
	}
	return some
}

// AnswersOf is the table of those rows of the first section that have a bar.
func (p Page) AnswersOf(table string) string { return answers(p.only(table)) }

// Lead is the first section.
func (p Page) Lead() (string, error) {
	figures := append(p.only("network"), p.only("calls")...)
	for i := range figures {
		if leads(figures[i].Row, "calls") {
			figures[i].Row.Question = "calls" // a table of its own here
		}
	}
	some := Page{in: p.in, figures: figures}
	t, err := template.New("lead").Parse(leadText)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, some); err != nil {
		return "", err
	}
	return out.String(), nil
}

// WriteLead puts the first section into benchmarks.md of dir, in the place of the one that
// is there, and its main figures into the README beside dir. The rest of both stays as it is.
func WriteLead(dir string, in *Input, figures []Figure) error {
	p := Page{in: in, figures: figures}
	lead, err := p.Lead()
	if err != nil {
		return err
	}
	for strings.Contains(lead, "\n\n\n") {
		lead = strings.ReplaceAll(lead, "\n\n\n", "\n\n")
	}
	if err := splice(filepath.Join(dir, "benchmarks.md"), "<!-- lead: begin", "<!-- lead: end -->\n", lead); err != nil {
		return err
	}
	return splice(filepath.Join(dir, "..", "README.md"), "<!-- network: begin", "<!-- network: end -->\n", p.readmeFigures())
}

// splice replaces what stands in a file from begin to end, both included.
func splice(name, begin, end, text string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no section from %q to %q", name, begin, end)
	}
	return os.WriteFile(name, []byte(before+text+after), 0o644)
}

// readmeFigures is the README's table of what was measured over a network.
func (p Page) readmeFigures() string {
	cells := [][]string{{"over a network with a round trip of 1 ms", "figure"}}
	add := func(what, text string, names ...string) {
		values := make([]any, len(names))
		for i, name := range names {
			n := slices.IndexFunc(p.figures, func(f Figure) bool { return f.Row.Name == name })
			if n < 0 || p.figures[n].Err != nil {
				return // not measured
			}
			values[i] = number(p.figures[n].Spread.Median, "")
		}
		cells = append(cells, []string{what, fmt.Sprintf(text, values...)})
	}
	add("one lock that 64 goroutines want for 1 ms each: turns per second",
		"%s of what the holding and one round trip allow; %s × redislock's, %s × redsync's, %s × rueidislock's",
		"network-contended", "network-contended-redislock", "network-contended-redsync", "network-contended-rueidislock")
	add("the same: turns of the goroutine that gets the fewest, to the most",
		"%s; redislock %s, redsync %s, rueidislock %s",
		"network-fewest", "network-fewest-redislock", "network-fewest-redsync", "network-fewest-rueidislock")
	add("a lone lock and unlock", "%s × two bare round trips; %s × redislock's time", "network-lone", "network-lone-redislock")
	add("a lock handed over to a waiter", "%s × a PUBLISH to a bare subscriber", "network-handover")
	const begin, end = "<!-- network: begin. make bench-network writes what follows. -->\n", "<!-- network: end -->\n"
	if len(cells) == 1 {
		return begin + end
	}
	return begin + markdown(cells) + end
}
