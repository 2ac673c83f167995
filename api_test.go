package leasehold_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The exported declarations of all packages that users import are those of api.txt: a change of
// the API is a change of that file, which a reviewer sees. LEASEHOLD_API=write writes it anew.
func TestAPI(t *testing.T) {
	const golden = "api.txt"
	got := exportedAPI(t)
	if os.Getenv("LEASEHOLD_API") == "write" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	before, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range before {
		if !slices.Contains(now, line) {
			t.Errorf("gone from the API: %s", line)
		}
	}
	for _, line := range now {
		if !slices.Contains(before, line) {
			t.Errorf("new in the API: %s", line)
		}
	}
	t.Errorf("if that is wanted: LEASEHOLD_API=write go test -run %s .", t.Name())
}

// exportedAPI is the exported declarations by package, without comments and bodies.
func exportedAPI(t *testing.T) string {
	t.Helper()
	dirs := map[string][]string{}
	for _, name := range glob(t, "**.go") {
		dir := filepath.ToSlash(filepath.Dir(name))
		if top, _, _ := strings.Cut(dir, "/"); top == "examples" || top == "bench" || top == "robustness" || top == "docs" ||
			strings.Contains("/"+dir+"/", "/internal/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		dirs[dir] = append(dirs[dir], name)
	}
	var packages []string
	for dir, names := range dirs {
		if text := exportedOf(t, names); text != "" {
			packages = append(packages, strings.TrimSuffix("github.com/leasehold-go/leasehold/"+dir, "/.")+"\n\n"+text)
		}
	}
	slices.Sort(packages)
	return strings.Join(packages, "\n")
}

func exportedOf(t *testing.T, names []string) string {
	t.Helper()
	var all []string
	for _, name := range names {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if file.Name.Name == "main" || !ast.FileExports(file) {
			continue
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				d.Body = nil
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
			}
			var text bytes.Buffer
			plain := printer.Config{Mode: printer.UseSpaces, Tabwidth: 4}
			if err := plain.Fprint(&text, files, decl); err != nil {
				t.Fatal(err)
			}
			all = append(all, strings.ReplaceAll(text.String(), "\n\n", "\n")+"\n")
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}
