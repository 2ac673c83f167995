package simulation

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// judge looks at the stored limits of the family with a total before and after every script
// call, so that it knows which are in force, and at every key before and after a call of
// revoke. Scripts run one at a time, as on a real server.
type judge struct {
	w       *world
	script  sync.Mutex // held while one runs
	running atomic.Pointer[server.Peer]
	limits  history
}

func newJudge(w *world) *judge {
	j := &judge{w: w, limits: history{settings: map[*setting]struct{}{}, values: map[string][]value{}}}
	redistest.WantErr(w.tb, w.direct.Ping(context.Background()).Err()) // the server begins with its first connection
	w.mini.Server().SetPreHook(j.run)
	return j
}

// run is called by the server before each command, and runs those that are judged.
func (j *judge) run(c *server.Peer, cmd string, args ...string) (done bool) {
	scripted := (cmd == "EVALSHA" || cmd == "EVAL") && len(args) > 2
	if !scripted && cmd != "FLUSHALL" || j.running.Load() == c {
		return false
	}
	j.script.Lock()
	defer j.script.Unlock()
	dispatch := func() {
		j.running.Store(c)
		j.w.mini.Server().Dispatch(c, append([]string{cmd}, args...))
		j.running.Store(nil)
	}
	if r, ok := parseRevoke(args); ok && scripted {
		run, before := dispatch, j.w.standing(r.kind, r.key)
		dispatch = func() {
			j.announce(r)
			run()
			j.revoked(r, before, j.w.standing(r.kind, r.key))
		}
	}
	if scripted {
		for _, name := range doneOf(args) {
			run := dispatch
			before, _ := j.w.mini.Get(name)
			dispatch = func() { run(); j.completes(name, before) }
		}
	}
	if scripted && args[2] != redisKey("tot", "", "holders") {
		dispatch()
		return true
	}
	before := j.stored()
	dispatch()
	j.limits.changes(before, j.stored())
	return true
}

// stored are the limits set at run time, by key; "" is the total.
func (j *judge) stored() map[string]int {
	all := map[string]int{}
	limits := redisKey("tot", "", "limits")
	keys, _ := j.w.mini.HKeys(limits) // an error: there are none
	for _, key := range keys {
		all[key], _ = strconv.Atoi(j.w.mini.HGet(limits, key))
	}
	return all
}
