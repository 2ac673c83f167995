package main

import "fmt"

// verdict lists what went against what the example shows, and what kept it from
// being tried: a refusal proves something only where the same write without the
// token did harm.
func verdict(plain, fenced outcome) (problems []string) {
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	for name, o := range map[string]outcome{"without the token": plain, "with the token": fenced} {
		if o.newToken <= o.oldToken {
			bad("%s: B's token %d is not above A's %d", name, o.newToken, o.oldToken)
		}
		if o.told != "lost" {
			bad("%s: A was not told that its lease was lost, so it was not stale", name)
		}
	}
	if plain.stale != accepted || plain.balance != opening+depositOfA {
		bad("without the token the stale write did no harm (%s, balance %d): the refusal proves nothing",
			plain.stale, plain.balance)
	}
	if fenced.stale != refused {
		bad("the stale write, with token %d after %d, was %s", fenced.oldToken, fenced.newToken, fenced.stale)
	}
	if want := opening + depositOfB; fenced.afterStale != want {
		bad("after the stale write the balance was %d; want B's %d", fenced.afterStale, want)
	}
	if want := opening + depositOfA + depositOfB; fenced.balance != want {
		bad("at the end the balance is %d; want %d with both deposits", fenced.balance, want)
	}
	return problems
}
