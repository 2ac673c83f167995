package leasehold_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// The documented rules allow the commands that the scripts call and those that the client sends, and no other command.
// That they are enough is shown on a server by the contract tests, with clients over TLS that may do nothing else, and on a
// Cluster by TestRightsOfOperations.
func TestDocumentedACL(t *testing.T) {
	called := map[string]bool{}
	for _, client := range strings.Fields("@scripting time subscribe unsubscribe ping publish wait pexpire zscan") {
		called[client] = true
	}
	command := regexp.MustCompile(`redis\.p?call\('(\w+)'`)
	for _, name := range glob(t, "**.lua") {
		for _, call := range command.FindAllStringSubmatch(string(redistest.Must(os.ReadFile(name))(t)), -1) {
			called[strings.ToLower(call[1])] = true
		}
	}
	delete(called, "info") // of a lock of several servers: docs/quorum.md has its rights
	allowed := map[string]bool{}
	further := regexp.MustCompile("(?m)^\\| `(\\+wait .+|\\+zscan .+)` \\| only").FindAllStringSubmatch(string(redistest.Must(os.ReadFile("docs/security.md"))(t)), -1)
	redistest.CheckNow(t, len(further) == 2, "docs/security.md names for Replicas and for revoking %q", further)
	rules := redistest.Must(redistest.DocumentedACL())(t)
	for _, rule := range append(rules, strings.Fields(further[0][1]+" "+further[1][1])...) {
		if name, isCommand := strings.CutPrefix(rule, "+"); isCommand {
			allowed[name] = true
		}
	}
	want, got := slices.Sorted(maps.Keys(called)), slices.Sorted(maps.Keys(allowed))
	redistest.Check(t, slices.Equal(got, want), "docs/security.md allows\n%q; called are\n%q", got, want)
}
