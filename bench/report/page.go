package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// The page is a template with prose written by hand.
//
//go:embed page.md.tmpl
var pageText string

// Page is what the template sees.
type Page struct {
	in      *Input
	figures []Figure
	drawn   map[string]bool
}

// WritePage writes benchmarks.md into dir and the pictures into dir/bench.
func WritePage(dir string, in *Input, figures []Figure) error {
	drawn, err := drawAll(filepath.Join(dir, "bench"), in)
	if err != nil {
		return err
	}
	text, err := Page{in, figures, drawn}.render()
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), text, 0o644)
}

func (p Page) render() ([]byte, error) {
	t, err := template.New("page").Parse(pageText)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, p); err != nil {
		return nil, err
	}
	// Where a picture or table has nothing to show, a gap would be left.
	text := out.String()
	for strings.Contains(text, "\n\n\n") {
		text = strings.ReplaceAll(text, "\n\n\n", "\n\n")
	}
	return []byte(strings.TrimRight(text, "\n") + "\n"), nil
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

// Repetitions is how often a row was measured.
func (p Page) Repetitions() int {
	least := 0
	for _, f := range p.figures {
		if n := len(f.Values); n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// Answers is the table of all rows with a bar.
func (p Page) Answers() string { return answers(p.figures) }

// Besides is a table of the rows of some questions that have no bar.
func (p Page) Besides(questions ...string) string { return besides(p.figures, questions) }

// Picture shows one, if it was drawn.
func (p Page) Picture(name, alt string) string {
	if !p.drawn[name] {
		return ""
	}
	return fmt.Sprintf("![%s](bench/%s.svg)", alt, name)
}
