package luascripts

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

const includes = "-- include "

// expand returns the text of a script or piece of tree with all that it includes. within names
// the files that are being expanded around it.
func expand(tree fs.FS, name string, within ...string) (string, error) {
	if slices.Contains(within, name) {
		return "", fmt.Errorf("%s.lua: includes itself", name)
	}
	text, err := fs.ReadFile(tree, name+".lua")
	if err != nil {
		return "", err
	}
	within = append(slices.Clone(within), name)
	var out strings.Builder
	for n, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		blanks, what, found := strings.Cut(line, includes)
		if !found || strings.TrimSpace(blanks) != "" {
			out.WriteString(line + "\n")
			continue
		}
		if !isPiece(what) {
			return "", fmt.Errorf("%s.lua:%d: %q is not a piece: those are in folders named shared", name, n+1, what)
		}
		piece, err := expand(tree, what, within...)
		if err != nil {
			return "", fmt.Errorf("%s.lua:%d: %w", name, n+1, err)
		}
		for _, line := range strings.SplitAfter("-- from "+what+".lua\n"+strings.TrimSuffix(piece, "\n"), "\n") {
			if line != "" && line != "\n" {
				line = blanks + line
			}
			out.WriteString(line)
		}
		out.WriteString("\n")
	}
	return out.String(), nil
}

// isPiece reports whether a file holds a piece that scripts include, and no script.
func isPiece(name string) bool { return path.Base(path.Dir(name)) == "shared" }
