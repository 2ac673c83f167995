package main

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	includeLine = regexp.MustCompile(`^(\s*)-- include (\S+)$`)
	// A comment of one word and a path can only be meant as an include. A
	// misspelt keyword must not turn it into a comment.
	likeInclude = regexp.MustCompile(`^\s*--+\s*\S+\s+\S+/\S+\s*$|^\s*--+\s*include\b`)
	definition  = regexp.MustCompile(`(?m)^local (?:function )?([\w, ]+)`)
	comment     = regexp.MustCompile(`--.*`)
)

// expandAll returns the complete scripts of a tree, by their paths. It refuses a
// tree with an include that is misspelt, a piece that no script includes, and a
// script that uses nothing of a piece that it includes.
func expandAll(tree fs.FS) (map[string]string, error) {
	scripts, included := map[string]string{}, map[string]bool{}
	var pieces []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name == "complete":
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".lua":
			return nil
		case isPiece(name):
			pieces = append(pieces, strings.TrimSuffix(name, ".lua"))
			return nil
		}
		x := expansion{tree: tree, pieces: map[string]string{}}
		text, err := x.expand(strings.TrimSuffix(name, ".lua"), nil)
		if err != nil {
			return err
		}
		for piece, defines := range x.pieces {
			included[piece] = true
			if !uses(text, defines) {
				return fmt.Errorf("%s: uses nothing of %s.lua, which it includes", name, piece)
			}
		}
		scripts[name] = "-- Written by go generate from luascripts/" + name + " and the pieces that it includes:\n" +
			"-- edit those.\n\n" + text
		return nil
	})
	for _, piece := range pieces {
		if !included[piece] && err == nil {
			err = fmt.Errorf("%s.lua: no script includes it", piece)
		}
	}
	return scripts, err
}

func isPiece(name string) bool { return path.Base(path.Dir(name)) == "shared" }

// expansion is that of one script.
type expansion struct {
	tree   fs.FS
	pieces map[string]string // that it includes, and their texts
}

// expand returns the text of a script or piece with all that it includes. within
// names the files that are being expanded around it.
func (x expansion) expand(name string, within []string) (string, error) {
	if slices.Contains(within, name) {
		return "", fmt.Errorf("%s.lua: includes itself", name)
	}
	text, err := fs.ReadFile(x.tree, name+".lua")
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		include := includeLine.FindStringSubmatch(line)
		switch {
		case include != nil && isPiece(include[2]):
			piece, err := x.expand(include[2], append(within, name))
			if err != nil {
				return "", fmt.Errorf("%s.lua:%d: %w", name, i+1, err)
			}
			x.pieces[include[2]] = piece
			out.WriteString(indent(include[1], "-- from "+include[2]+".lua\n"+piece))
		case include != nil || likeInclude.MatchString(line):
			return "", fmt.Errorf("%s.lua:%d: %q is not \"-- include <path of a piece>\"", name, i+1, line)
		default:
			out.WriteString(line + "\n")
		}
	}
	return out.String(), nil
}

// uses tells whether text, which contains the piece, mentions a name that the piece
// defines more often than the piece itself does, comments aside.
func uses(text, piece string) bool {
	text, piece = comment.ReplaceAllString(text, ""), comment.ReplaceAllString(piece, "")
	for _, names := range definition.FindAllStringSubmatch(piece, -1) {
		for _, name := range strings.FieldsFunc(names[1], func(r rune) bool { return r == ',' || r == ' ' }) {
			word := regexp.MustCompile(`\b` + name + `\b`)
			if len(word.FindAllString(text, -1)) > len(word.FindAllString(piece, -1)) {
				return true
			}
		}
	}
	return false
}

func indent(by, text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = by + line
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
