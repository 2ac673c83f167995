package redistest

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// Runs matches commands of a proxy that run that script.
func Runs(script string) func(cmd []string) bool {
	return func(cmd []string) bool {
		return len(cmd) > 1 && (cmd[0] == "EVALSHA" && cmd[1] == sha(script) || cmd[0] == "EVAL" && cmd[1] == script)
	}
}

// Watch counts the scripts that the server behind p has run on a resource, which
// its first key names, whether or not the client got the answer.
func Watch(p *Proxy) func(script, holders string) int {
	var mu sync.Mutex
	counts := map[string]int{}
	p.SetHook(func(ev Event) Action {
		if ev.Stage == OnReply && !ev.Failed() && len(ev.Cmd) > 3 {
			mu.Lock()
			defer mu.Unlock()
			switch ev.Name() {
			case "EVALSHA":
				counts[ev.Cmd[1]+ev.Cmd[3]]++
			case "EVAL":
				counts[sha(ev.Cmd[1])+ev.Cmd[3]]++
			}
		}
		return Pass
	})
	return func(script, holders string) int {
		mu.Lock()
		defer mu.Unlock()
		return counts[sha(script)+holders]
	}
}
