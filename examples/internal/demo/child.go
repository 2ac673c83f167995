package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// envChild tells a child what it is: arguments are for everybody to see, and the URL of a
// Redis may hold a password.
const envChild = "LEASEHOLD_EXAMPLE_CHILD"

// Role is the main function of a child process. It returns soon after ctx has ended, which
// happens when the parent asks it to stop, or dies. Check and Must end it, too.
type Role func(ctx context.Context, c *Child) error

// Child is a child process as it sees itself. Its JSON is the value of envChild.
type Child struct {
	Name      string // in the parent's words, such as "A"
	Run       string // the run's name
	Args      []string
	Role, URL string

	Redis  *redis.Client `json:"-"`
	Orders <-chan string `json:"-"` // lines that the parent sent
}

// runChild plays the role of a child process.
func runChild(roles map[string]Role, text string) (err error) {
	defer catch(&err)
	var c Child
	Check(json.Unmarshal([]byte(text), &c))
	c.Redis = Must(Client(c.URL))
	defer c.Redis.Close()
	return roles[c.Role](c.obey(), &c)
}

// The orders of [Process.Cut] and [Process.Mend].
const cut, mend = "cut", "mend"

// obey reads the parent's orders from stdin. The end of stdin ends ctx: the
// parent closed it, or died, in which case the kernel did.
func (c *Child) obey() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	orders := make(chan string, 100)
	c.Orders = orders
	go func() {
		end := func() {}
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			switch in.Text() {
			case cut:
				end = leaseholdtest.Outage(c.Redis)
			case mend:
				end()
			default:
				orders <- in.Text()
			}
		}
		stop()
		time.Sleep(5 * time.Second)
		os.Exit(3) // a child that hangs does not outlive its parent by much
	}()
	return ctx
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
	if json.NewEncoder(os.Stdout).Encode(e) != nil {
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
