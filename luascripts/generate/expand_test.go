package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/leasehold-go/leasehold/luascripts"
)

// The files of the folder complete, which are sent, are what the sources say now:
// else run go generate ./luascripts.
func TestCompleteScriptsAreUpToDate(t *testing.T) {
	fresh, err := expandAll(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = filepath.WalkDir("../complete", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		found++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel("../complete", path)
		if err != nil {
			return err
		}
		if want, ok := fresh[filepath.ToSlash(name)]; !ok || want != string(text) {
			t.Errorf("%s is not what its source expands to", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if found != len(fresh) {
		t.Errorf("%d complete scripts are there; want %d", found, len(fresh))
	}
}

// Each script has a function that returns it, and only it.
func TestEachScriptHasItsFunction(t *testing.T) {
	fresh, err := expandAll(os.DirFS(".."))
	if err != nil {
		t.Fatal(err)
	}
	functions := map[string]func() string{
		"permits/enter.lua": luascripts.PermitsEnter, "permits/leave.lua": luascripts.PermitsLeave,
		"permits/ask.lua": luascripts.PermitsAsk, "permits/renew.lua": luascripts.PermitsRenew,
		"permits/set_limit.lua": luascripts.PermitsSetLimit, "permits/revoke.lua": luascripts.PermitsRevoke, "permits/fate.lua": luascripts.PermitsFate,
		"totals/revoke.lua": luascripts.TotalsRevoke, "loads/revoke.lua": luascripts.LoadsRevoke, "loads/fate.lua": luascripts.LoadsFate,
		"totals/enter.lua": luascripts.TotalsEnter, "totals/leave.lua": luascripts.TotalsLeave, "totals/ask.lua": luascripts.TotalsAsk,
		"permits/leave_turns.lua": luascripts.PermitsLeaveTurns, "permits/renew_count.lua": luascripts.PermitsRenewCount,
		"totals/renew.lua": luascripts.TotalsRenew, "totals/set_limit.lua": luascripts.TotalsSetLimit,
		"loads/enter.lua": luascripts.LoadsEnter, "loads/leave.lua": luascripts.LoadsLeave, "loads/ask.lua": luascripts.LoadsAsk,
		"loads/renew.lua": luascripts.LoadsRenew, "loads/publish.lua": luascripts.LoadsPublish, "loads/put.lua": luascripts.LoadsPut,
		"loads/invalidate.lua": luascripts.LoadsInvalidate, "loads/inspect.lua": luascripts.LoadsInspect,
		"guard/set.lua": luascripts.GuardSet,
	}
	for name, text := range fresh {
		if functions[name] == nil {
			t.Errorf("no function returns %s", name)
		} else if functions[name]() != text {
			t.Errorf("the function of %s returns another text", name)
		}
	}
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
	scripts, err := expandAll(tree("p/s.lua", script, "shared/a.lua", "local a = 1\n-- include p/shared/b\n", "p/shared/b.lua", "local b = a\n\n"))
	want := "  -- from shared/a.lua\n  local a = 1\n  -- from p/shared/b.lua\n  local b = a\n\nreturn a + b\n"
	if err != nil || !strings.HasSuffix(scripts["p/s.lua"], "\n\n"+want) {
		t.Errorf("expanded to %q, %v; want %q behind a head", scripts["p/s.lua"], err, want)
	}

	for _, c := range []struct {
		name string
		tree fs.FS
		want string
	}{
		{"a path that is misspelt", tree("p/s.lua", script), "p/s.lua:1: open shared/a.lua"},
		{"a keyword that is misspelt", tree("p/s.lua", "-- inlcude shared/a\nreturn a"), "p/s.lua:1: "},
		{"too many blanks", tree("p/s.lua", "--  include shared/a\nreturn a", "shared/a.lua", "local a = 1"), "p/s.lua:1: "},
		{"a word too many", tree("p/s.lua", "-- include shared/a once\nreturn a", "shared/a.lua", "local a = 1"), "p/s.lua:1: "},
		{"a script as a piece", tree("p/s.lua", "-- include p/t", "p/t.lua", "return 1"), "p/s.lua:1: "},
		{"a piece that nobody includes", tree("p/s.lua", "return 1", "shared/a.lua", "local a = 1"), "shared/a.lua: no script"},
		{"a piece that is not used", tree("p/s.lua", "-- include shared/a\nreturn 1", "shared/a.lua", "local a = 1"), "p/s.lua: uses nothing of shared/a.lua"},
		{"a piece within itself", tree("p/s.lua", script, "shared/a.lua", "local a = 1\n-- include shared/a"), "shared/a.lua: includes itself"},
	} {
		if _, err := expandAll(c.tree); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want an error about %q", c.name, err, c.want)
		}
	}
}
