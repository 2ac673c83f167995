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

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The exported declarations of all packages that users import are those of api.txt: a change of
// the API is a change of that file, which a reviewer sees. LEASEHOLD_API=write writes it anew.
func TestAPI(t *testing.T) {
	const golden = "api.txt"
	got := exportedAPI(t)
	if os.Getenv("LEASEHOLD_API") == "write" {
		redistest.WantErr(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want := redistest.Must(os.ReadFile(golden))(t)
	if got == string(want) {
		return
	}
	before, now := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range before {
		redistest.Check(t, slices.Contains(now, line), "gone from the API: %s", line)
	}
	for _, line := range now {
		redistest.Check(t, slices.Contains(before, line), "new in the API: %s", line)
	}
	t.Errorf("if that is wanted: LEASEHOLD_API=write go test -run %s .", t.Name())
}

// The comment of an exported declaration or field has at most 20 lines. A longer one is not read.
func TestDocCommentsAreShort(t *testing.T) {
	seen := 0
	for _, names := range apiFiles(t) {
		for _, name := range names {
			files := token.NewFileSet()
			file := redistest.Must(parser.ParseFile(files, name, nil, parser.ParseComments))(t)
			if file.Name.Name == "main" || !ast.FileExports(file) {
				continue
			}
			file.Doc = nil // of the package: usage, costs and promises
			ast.Inspect(file, func(n ast.Node) bool {
				if group, ok := n.(*ast.CommentGroup); ok {
					seen++
					lines := files.Position(group.End()).Line - files.Position(group.Pos()).Line + 1
					redistest.Check(t, lines <= 20, "%v: a comment of %d lines", files.Position(group.Pos()), lines)
				}
				return true
			})
		}
	}
	redistest.Check(t, seen >= 200, "%d comments were looked at", seen)
}

// apiFiles is the files of the packages that users import, by folder.
func apiFiles(t *testing.T) map[string][]string {
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
	return dirs
}

// exportedAPI is the exported declarations by package, without comments and bodies.
func exportedAPI(t *testing.T) string {
	t.Helper()
	dirs := apiFiles(t)
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
		file := redistest.Must(parser.ParseFile(files, name, nil, 0))(t)
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
			redistest.WantErr(t, plain.Fprint(&text, files, decl))
			all = append(all, strings.ReplaceAll(text.String(), "\n\n", "\n")+"\n")
		}
	}
	slices.Sort(all)
	return strings.Join(all, "")
}
