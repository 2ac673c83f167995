package redistest

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Wire is a client's way to Redis, of any topology, that can be cut: its
// connections are then closed, no other is made, and commands fail without being
// sent. It also counts what is sent.
type Wire struct {
	mu    sync.Mutex
	isCut bool
	gate  chan struct{} // while stalled
	all   int
	calls map[string]int // by the script's digest
	conns []net.Conn

	held           []func()
	dials, replies chan struct{} // hold what is named, until closed
	repliesTo      string
}

// HoldDials holds up connections that are made from now on until the function
// that it returns is called, or heal.
func (w *Wire) HoldDials() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dials = make(chan struct{})
	release = closing(w.dials)
	w.held = append(w.held, release)
	return release
}

// HoldReplies does the same with the answers to that script.
func (w *Wire) HoldReplies(script string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replies, w.repliesTo = make(chan struct{}), sha(script)
	release = closing(w.replies)
	w.held = append(w.held, release)
	return release
}

func closing(gate chan struct{}) func() { return sync.OnceFunc(func() { close(gate) }) }

// ErrCut is what a command comes to while its wire is cut.
var ErrCut = &net.OpError{Op: "read", Net: "tcp", Err: errors.New("wire cut")}

// Dialer makes connections over the wire, with dial or else as usual.
func (w *Wire) Dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.mu.Lock()
		gate := w.dials
		w.mu.Unlock()
		if gate != nil {
			<-gate
		}
		c, err := dial(ctx, network, addr)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.isCut {
			_ = c.Close()
			return nil, ErrCut
		}
		w.conns = append(w.conns, c)
		return c, err
	}
}

// Cut closes all connections, and fails what is sent from now on.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for _, c := range w.conns {
		if c != nil {
			_ = c.Close()
		}
	}
	w.conns = nil
}

// Stall holds up every command until heal.
func (w *Wire) Stall() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gate = make(chan struct{})
}

// Heal ends whatever was done to the wire.
func (w *Wire) Heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
	for _, release := range w.held {
		release()
	}
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
}

// Sent is the number of commands sent so far, those of pipelines included.
func (w *Wire) Sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all
}

// Ran is how often that script was sent so far.
func (w *Wire) Ran(script string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[sha(script)]
}

// pass counts commands in, unless the wire is cut.
func (w *Wire) pass(cmds []redis.Cmder) error {
	w.mu.Lock()
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all += len(cmds)
	for _, c := range cmds {
		if script := digest(c); script != "" {
			if w.calls == nil {
				w.calls = map[string]int{}
			}
			w.calls[script]++
		}
	}
	if w.isCut {
		return ErrCut
	}
	return nil
}

// digest is that of the script which a command runs, "" where it runs none.
func digest(c redis.Cmder) string {
	switch strings.ToLower(c.Name()) {
	case "evalsha":
		return c.Args()[1].(string)
	case "eval":
		return sha(c.Args()[1].(string))
	}
	return ""
}

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

// DialHook leaves dialling alone.
func (w *Wire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook counts and cuts single commands.
func (w *Wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := w.pass([]redis.Cmder{cmd}); err != nil {
			cmd.SetErr(err)
			return err
		}
		err := next(ctx, cmd)
		w.mu.Lock()
		gate := w.replies
		if digest(cmd) != w.repliesTo {
			gate = nil
		}
		w.mu.Unlock()
		if gate != nil {
			<-gate
		}
		return err
	}
}

// ProcessPipelineHook counts and cuts pipelines.
func (w *Wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := w.pass(cmds); err != nil {
			for _, c := range cmds {
				c.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
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
