package luascripts

import (
	"crypto/sha1"
	_ "embed"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

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

// Each script has a function that returns it, and only it.
func TestEachScriptHasItsFunction(t *testing.T) {
	functions := map[string]func() string{
		"permits/enter": PermitsEnter, "permits/leave": PermitsLeave, "permits/ask": PermitsAsk, "permits/renew": PermitsRenew,
		"permits/set_limit": PermitsSetLimit, "permits/revoke": PermitsRevoke,
		"permits/leave_turns": PermitsLeaveTurns, "permits/renew_count": PermitsRenewCount, "permits/renew_keep": PermitsRenewKeep,
		"permits/enter_once": PermitsEnterOnce, "permits/complete": PermitsComplete, "permits/is_complete": PermitsIsComplete,
		"totals/enter": TotalsEnter, "totals/leave": TotalsLeave, "totals/ask": TotalsAsk,
		"totals/renew": TotalsRenew, "totals/set_limit": TotalsSetLimit, "totals/revoke": TotalsRevoke,
		"quorum/enter": QuorumEnter, "quorum/leave": QuorumLeave, "quorum/yield": QuorumYield, "quorum/look": QuorumLook, "quorum/revoke": QuorumRevoke,
		"loads/enter": LoadsEnter, "loads/leave": LoadsLeave, "loads/ask": LoadsAsk, "loads/renew": LoadsRenew,
		"loads/publish": LoadsPublish, "loads/put": LoadsPut, "loads/invalidate": LoadsInvalidate,
		"loads/inspect": LoadsInspect, "loads/revoke": LoadsRevoke,
		"loads/near_read": LoadsNearRead, "loads/near_tell": LoadsNearTell, "loads/near_leave": LoadsNearLeave,
		"guard/set": GuardSet,
	}
	names := Names()
	for _, name := range names {
		if functions[name] == nil {
			t.Errorf("no function returns %s", name)
		} else if functions[name]() != Whole(name) {
			t.Errorf("the function of %s returns another text", name)
		}
	}
	redistest.Check(t, len(names) == len(functions), "there are %d scripts and %d functions", len(names), len(functions))
}

func TestScriptsUseTheirPieces(t *testing.T) {
	redistest.NoError(t, check(tree))
}

var (
	// A comment of one word and paths can only be meant as an include. A misspelt keyword must
	// not turn it into a comment.
	likeInclude = regexp.MustCompile(`^\s*--+\s*\S+\s+\S+/\S+(,\s*\S+/\S+)*\s*$|^\s*--+\s*include\b`)
	definition  = regexp.MustCompile(`(?m)^local (?:function )?([\w, ]+)`)
	comment     = regexp.MustCompile(`--.*`)
	reply       = regexp.MustCompile(`(?m)^return .*\n\z`)
)

// check refuses an include that is misspelt, a piece that no script includes or that has no
// comment at its head, and a script that uses nothing of a piece that it includes.
func check(tree fs.FS) error {
	included := map[string]bool{}
	var pieces []string
	err := fs.WalkDir(tree, ".", func(file string, d fs.DirEntry, err error) error {
		name, isScript := strings.CutSuffix(file, ".lua")
		if err != nil || d.IsDir() || !isScript {
			return err
		}
		source, err := fs.ReadFile(tree, file)
		if err != nil {
			return err
		}
		if isPiece(name) {
			pieces = append(pieces, name)
		}
		whole, err := expand(tree, name)
		if err != nil {
			return err
		}
		for n, line := range strings.Split(string(source), "\n") {
			if !likeInclude.MatchString(line) {
				continue
			}
			_, list, exact := strings.Cut(strings.TrimSpace(line), includes)
			for piece := range strings.SplitSeq(list, ", ") {
				if !exact || strings.Contains(piece, " ") {
					return fmt.Errorf("%s:%d: %q is not \"%s<path of a piece>, …\"", file, n+1, line, includes)
				}
				text, err := expand(tree, piece)
				if err != nil {
					return err
				}
				if included[piece] = true; !isPiece(name) && !uses(whole, text) {
					return fmt.Errorf("%s: uses nothing of %s.lua, which it includes", file, piece)
				}
			}
		}
		return nil
	})
	for _, piece := range pieces {
		if !included[piece] && err == nil {
			err = fmt.Errorf("%s.lua: no script includes it", piece)
		}
	}
	return err
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

func TestIncludes(t *testing.T) {
	tree := func(files ...string) fstest.MapFS {
		tree := fstest.MapFS{}
		for i := 0; i < len(files); i += 2 {
			tree[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
		}
		return tree
	}
	script := "  -- include shared/a\nreturn a + b\n"
	one := tree("p/s.lua", "-- include shared/a, shared/b\nreturn a + b\n", "shared/a.lua", "local a = 1\n", "shared/b.lua", "local b = a\n")
	if text, err := expand(one, "p/s"); err != nil || text != "-- from shared/a.lua\nlocal a = 1\n-- from shared/b.lua\nlocal b = a\nreturn a + b\n" {
		t.Errorf("two pieces in a line expanded to %q, %v", text, err)
	}
	two := tree("p/s.lua", script, "shared/a.lua", "local a = 1\n-- include p/shared/b\n", "p/shared/b.lua", "local b = a\n\n")
	text, err := expand(two, "p/s")
	want := "  -- from shared/a.lua\n  local a = 1\n  -- from p/shared/b.lua\n  local b = a\n\nreturn a + b\n"
	redistest.Check(t, err == nil && text == want, "expanded to %q, %v; want %q", text, err, want)

	for _, c := range []struct {
		name string
		tree fs.FS
		want string
	}{
		{"a path that is misspelt", tree("p/s.lua", script), "p/s.lua:1: open shared/a.lua"},
		{"a keyword that is misspelt", tree("p/s.lua", "-- inlcude shared/a\nreturn a"), "p/s.lua:1: "},
		{"a keyword that is misspelt before two pieces", tree("p/s.lua", "-- inlcude shared/a, shared/b\nreturn a"), "p/s.lua:1: "},
		{"no blank between two pieces", tree("p/s.lua", "-- include shared/a,shared/b\nreturn a", "shared/a.lua", "local a = 1"), "p/s.lua:1: "},
		{"too many blanks", tree("p/s.lua", "--  include shared/a\nreturn a", "shared/a.lua", "local a = 1"), "p/s.lua:1: "},
		{"a word too many", tree("p/s.lua", "-- include shared/a once\nreturn a", "shared/a.lua", "local a = 1"), "p/s.lua:1: "},
		{"a script as a piece", tree("p/s.lua", "-- include p/t", "p/t.lua", "return 1"), "p/s.lua:1: "},
		{"a piece that nobody includes", tree("p/s.lua", "return 1", "shared/a.lua", "local a = 1"), "shared/a.lua: no script"},
		{"a piece that is not used", tree("p/s.lua", "-- include shared/a\nreturn 1", "shared/a.lua", "local a = 1"), "p/s.lua: uses nothing of shared/a.lua"},
		{"a piece within itself", tree("p/s.lua", script, "shared/a.lua", "local a = 1\n-- include shared/a"), "shared/a.lua: includes itself"},
	} {
		if err := check(c.tree); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error about %q", c.name, err, c.want)
		}
	}
}
