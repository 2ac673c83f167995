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

// The page is a template with prose written by hand. Its first section can be measured
// and written by itself: the templates "lead" and "readme" in it.
//
//go:embed page.md.tmpl
var pageText string

var templates = template.Must(template.New("page").Parse(pageText))

// Page is what the template sees.
type Page struct {
	in   *Input
	rows []*Row
}

func (p Page) render(name string) (string, error) {
	var out bytes.Buffer
	err := templates.ExecuteTemplate(&out, name, p)
	return out.String(), err
}

// Write writes benchmarks.md into dir and the pictures into dir/bench.
func (p Page) Write(dir string) error {
	if err := drawAll(filepath.Join(dir, "bench"), p.in); err != nil {
		return err
	}
	text, err := p.render("page")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(text), 0o644)
}

// WriteLead puts the first section into benchmarks.md of dir, in the place of the one that
// is there, and its main figures into the README beside dir. The rest of both stays as it is.
func (p Page) WriteLead(dir string) error {
	if err := p.splice(filepath.Join(dir, "benchmarks.md"), "lead"); err != nil {
		return err
	}
	return p.splice(filepath.Join(dir, "..", "README.md"), "readme")
}

// splice renders a template between the two comments of a file that are called after it.
func (p Page) splice(name, section string) error {
	text, err := p.render(section)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+section+": begin -->\n", "<!-- "+section+": end -->\n"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		return fmt.Errorf("%s has no section from %q to %q", name, begin, end)
	}
	return os.WriteFile(name, []byte(before+begin+text+end+after), 0o644)
}

// Machine is what it ran on, as the output says it.
func (p Page) Machine() string {
	var parts []string
	for _, key := range []string{"cpu", "processors", "goos", "goarch", "server", "go"} {
		v := p.in.Config(key)
		switch {
		case v == "":
			v = key + " not told"
		case key == "processors":
			v += " processors"
		}
		parts = append(parts, v)
	}
	return strings.Join(parts, ", ")
}

// Repetitions is how often the rows of some questions were measured at least.
func (p Page) Repetitions(questions ...string) (least int) {
	for _, r := range p.rows {
		if n := len(r.Values); slices.Contains(questions, r.Question) && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// Answers is a table of those rows of some questions that have a bar, in bold where the figure does not reach it.
func (p Page) Answers(questions ...string) string {
	s := "| question | figure | bar |\n|---|---|---|\n"
	for _, r := range p.rows {
		if !slices.Contains(questions, r.Question) || r.Bar == (Limit{}) {
			continue
		}
		bar := r.Bar.With(r.Unit)
		if r.Verdict() != "reached" {
			bar = "**" + bar + "**"
		}
		s += fmt.Sprintf("| %s | %v | %s |\n", r.What, r, bar)
	}
	return strings.TrimSuffix(s, "\n")
}

func (p Page) Row(name string) (*Row, error) {
	for _, r := range p.rows {
		if r.Name == name {
			return r, nil
		}
	}
	return nil, fmt.Errorf("there is no row %s", name)
}

// Median is the median of a row's figure.
func (p Page) Median(name string) (string, error) {
	r, err := p.Row(name)
	if err != nil {
		return "", err
	}
	return r.Median(), nil
}
