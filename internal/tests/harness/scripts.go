package harness

import (
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

var scriptNames sync.Map // by what is on the wire

// Script is what a command on the wire does: a script of ours by its name, or the command's own name.
func Script(cmd []string) string {
	switch {
	case len(cmd) == 0:
		return ""
	case len(cmd) == 1 || !strings.HasPrefix(cmd[0], "EVAL"):
		return cmd[0]
	}
	name, ok := scriptNames.Load(cmd[1])
	if !ok {
		name, _ = scriptNames.LoadOrStore(cmd[1], call.ScriptName(cmd[1]))
	}
	return name.(string)
}

// Does matches a script or command on the wire.
func Does(name string) func(cmd []string) bool {
	return func(cmd []string) bool { return Script(cmd) == name }
}

// Answers tells of each good reply to a script that passes through a proxy from now on.
func Answers(p *redistest.Proxy, name string) <-chan struct{} {
	c := make(chan struct{}, 10_000)
	p.SetHook(func(ev redistest.Event) redistest.Action {
		if ev.Stage == redistest.OnReply && !ev.Failed() && Script(ev.Cmd) == name {
			c <- struct{}{}
		}
		return redistest.Pass
	})
	return c
}

// Integers are the leading integers of a script's reply on the wire; nil where it is an error.
func Integers(reply []byte) []int64 {
	var all []int64
	for i, line := range strings.Split(strings.TrimSpace(string(reply)), "\r\n") {
		if i == 0 && line[0] == '*' {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(line, ":"), 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, n)
	}
	return all
}
