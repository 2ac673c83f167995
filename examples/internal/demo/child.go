package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The environment tells a child what it is: arguments are for everybody to see,
// and the URL of a Redis may hold a password.
const (
	envRole  = "LEASEHOLD_EXAMPLE_ROLE"
	envName  = "LEASEHOLD_EXAMPLE_NAME"
	envRun   = "LEASEHOLD_EXAMPLE_RUN"
	envArgs  = "LEASEHOLD_EXAMPLE_ARGS"
	envRedis = "LEASEHOLD_EXAMPLE_REDIS"
	envLink  = "LEASEHOLD_EXAMPLE_LINK"
)

// Role is the main function of a child process. It returns soon after ctx has ended, which
// happens when the parent asks it to stop, or dies. Check and Must end it, too.
type Role func(ctx context.Context, c *Child) error

// Child is a child process as it sees itself.
type Child struct {
	Name   string // in the parent's words, such as "A"
	Run    string // the run's name
	Args   []string
	Redis  *redis.Client
	Orders <-chan string // lines that the parent sent
}

func childMain(roles map[string]Role, role string) int {
	fn := roles[role]
	if fn == nil {
		fmt.Fprintf(os.Stderr, "no role %q\n", role)
		return 2
	}
	if err := fn.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func (fn Role) run() (err error) {
	defer catch(&err)
	rdb := Must(client(os.Getenv(envRedis), os.Getenv(envLink)))
	defer rdb.Close()
	ctx, orders := obey()
	return fn(ctx, &Child{
		Name: os.Getenv(envName), Run: os.Getenv(envRun), Args: strings.Split(os.Getenv(envArgs), "\n"), Redis: rdb, Orders: orders,
	})
}

// obey reads the parent's orders from stdin. The end of stdin ends ctx: the
// parent closed it, or died, in which case the kernel did.
func obey() (ctx context.Context, orders <-chan string) {
	ctx, stop := context.WithCancel(context.Background())
	received := make(chan string, 100)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			received <- in.Text()
		}
		stop()
		time.Sleep(5 * time.Second)
		os.Exit(3) // a child that hangs does not outlive its parent by much
	}()
	return ctx, received
}

// Event is what a child reports, as a line of JSON on its stdout. Each example
// has kinds of its own, and uses the fields that it needs.
type Event struct {
	At     time.Time     `json:"at"` // by the child's clock
	Kind   string        `json:"kind"`
	Text   string        `json:"text,omitempty"`
	Token  uint64        `json:"token,omitempty"`
	Number int           `json:"number,omitempty"`
	Item   int           `json:"item,omitempty"`
	Left   time.Duration `json:"left,omitempty"`

	From  string `json:"-"` // the child's name
	Index int    `json:"-"` // counts the events in their order of arrival
}

// Ended is the kind of a process's last event, which its parent adds. Text says
// how it failed.
const Ended = "ended"

// isLike says for [Fleet.Await] whether e is the event that is waited for.
func (e Event) isLike(want Event) bool {
	return (want.From == "" || e.From == want.From) &&
		(want.Kind == "" || e.Kind == want.Kind) &&
		(want.Text == "" || e.Text == want.Text) &&
		(want.Number == 0 || e.Number == want.Number) &&
		(want.Item == 0 || e.Item == want.Item) &&
		(want.Left == 0 || e.Left == want.Left) &&
		e.Index >= want.Index && !e.At.Before(want.At)
}

// failure is the error of a process that failed, if this is its last event.
func (e Event) failure() error {
	if e.Kind != Ended || e.Text == "" {
		return nil
	}
	return fmt.Errorf("%s failed: %s", e.From, e.Text)
}

// Report reports e, with the present time. It returns when the pipe has it, so
// what a child did before it was killed is known up to its last report.
func (c *Child) Report(e Event) {
	e.At = time.Now()
	line, err := json.Marshal(e)
	if err != nil {
		panic(err) // no field of an event can fail to encode
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(1) // the parent is gone
	}
}

// Close ends a handle at the end of a role, whose ctx may have ended already. What is
// held may be finished meanwhile. A lease that could not be given back ends with its TTL.
func Close(ctx context.Context, handle interface{ Shutdown(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	_ = handle.Shutdown(ctx)
}
