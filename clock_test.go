package leasehold_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A time that went through one of these has no monotonic reading any more, or
// never had one.
var wallClock = []string{
	"UTC", "Local", "In", "Round", "Truncate", "AddDate", "Unix", "UnixMilli", "UnixMicro", "UnixNano", "Date", "Parse", "ParseInLocation",
	"Year", "Month", "Day", "YearDay", "Weekday", "Hour", "Minute", "Second", "Nanosecond", "Clock", "Format", "AppendFormat",
}

// A client's wall clock may jump: nothing depends on it. Go's runtime reads its
// clocks where nothing can be put before them, so that this is shown by what the
// packages don't do: they never ask a time for its place on the wall clock, so
// that all their times carry monotonic readings, by which Go then compares and
// subtracts them. Timers and contexts go by these anyway.
func TestOnlyMonotonicClocksAreRead(t *testing.T) {
	// Methods of this module that have the name of one that reads a wall clock.
	allowed := map[string]string{"internal/call/errors.go": "Round"}
	reads := 0
	for _, name := range glob(t, "**.go") {
		name = filepath.ToSlash(name)
		dir, _, _ := strings.Cut(name, "/")
		inside := slices.Contains([]string{"semaphore", "mutex", "singleflight", "multi", "internal"}, dir) || !strings.Contains(name, "/")
		if !inside || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/redistest/") || strings.HasPrefix(name, "internal/tests/") || strings.HasPrefix(name, "internal/database/") {
			continue
		}
		set := token.NewFileSet()
		file := redistest.Must(parser.ParseFile(set, name, nil, 0))(t)
		ast.Inspect(file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if strings.HasPrefix(name, "internal/listing/") {
				// Its times are all the server's: it reads no clock of this machine.
				if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" && slices.Contains([]string{"Now", "Since", "Until"}, sel.Sel.Name) {
					t.Errorf("%s: %s reads this machine's clock in a listing", set.Position(sel.Pos()), sel.Sel.Name)
				}
				return true
			}
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == "time" {
				switch sel.Sel.Name {
				case "Now":
					reads++
				case "Hour", "Minute", "Second", "Nanosecond":
					return true // as durations
				}
			}
			if slices.Contains(wallClock, sel.Sel.Name) && allowed[name] != sel.Sel.Name {
				t.Errorf("%s: %s loses the monotonic reading of a time", set.Position(sel.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
	redistest.CheckNow(t, reads != 0, "no file reads a clock")
}
