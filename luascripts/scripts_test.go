package luascripts

import (
	"crypto/sha1"
	_ "embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

//go:embed hashes
var hashes string

// Nobody changes a whole script unknowingly: a piece is part of several.
func TestHashes(t *testing.T) {
	var fresh strings.Builder
	for _, name := range Names() {
		fmt.Fprintf(&fresh, "%x %s\n", sha1.Sum([]byte(Whole(name))), name)
	}
	if fresh.String() != hashes {
		t.Errorf("the scripts are no longer those of the file hashes. If that is meant, run\n"+
			"go run ./luascripts/print > luascripts/hashes\n%s", fresh.String())
	}
}

var (
	// A comment of one word and paths can only be meant as an include. A misspelt keyword must
	// not turn it into a comment.
	likeInclude = regexp.MustCompile(`^\s*--+\s*\S+\s+\S+/\S+(,\s*\S+/\S+)*\s*$|^\s*--+\s*include\b`)
	exact       = regexp.MustCompile(`^\s*` + includes + `\w+(/\w+)*(, \w+(/\w+)*)*$`)
	definition  = regexp.MustCompile(`(?m)^local (?:function )?([\w, ]+)`)
	comment     = regexp.MustCompile(`--.*`)
	reply       = regexp.MustCompile(`(?m)^return .*\n\z`)
)

// No include is misspelt, scripts include pieces only, each piece is included, and each script
// uses something of what it includes.
func TestScriptsUseTheirPieces(t *testing.T) {
	included := map[string]bool{}
	var pieces []string
	redistest.NoError(t, fs.WalkDir(tree, ".", func(file string, _ fs.DirEntry, err error) error {
		name, isScript := strings.CutSuffix(file, ".lua")
		if err != nil || !isScript {
			return err
		}
		if isPiece(name) {
			pieces = append(pieces, name)
		}
		whole := Whole(name)
		for line := range strings.SplitSeq(string(redistest.Must(tree.ReadFile(file))(t)), "\n") {
			if !likeInclude.MatchString(line) {
				continue
			}
			redistest.CheckNow(t, exact.MatchString(line), "%s: %q is not \"%s<path of a piece>, …\"", file, line, includes)
			_, list, _ := strings.Cut(line, includes)
			for piece := range strings.SplitSeq(list, ", ") {
				included[piece] = true
				redistest.Check(t, isPiece(piece), "%s: %s is not in a folder named shared", file, piece)
				redistest.Check(t, isPiece(name) || uses(whole, Whole(piece)), "%s: uses nothing of %s.lua, which it includes", file, piece)
			}
		}
		return nil
	}))
	for _, piece := range pieces {
		redistest.Check(t, included[piece], "%s.lua: no script includes it", piece)
	}
}

// uses tells whether text, which contains the piece, mentions a name that the piece defines
// more often than the piece itself does, comments aside. A piece that ends with the script's
// reply does the work itself.
func uses(text, piece string) bool {
	if reply.MatchString(piece) {
		return true
	}
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
