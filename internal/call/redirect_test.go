package call

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// elsewhere is a connection to a node that answers each script of a test with the name of another one.
type elsewhere struct {
	net.Conn
	answer string // to a script
	due    string // what is still to be read of the answers
}

func (c *elsewhere) Write(data []byte) (int, error) {
	scripts := bytes.Count(data, []byte(echo.sha))
	if scripts == 0 {
		return c.Conn.Write(data)
	}
	c.due += strings.Repeat(c.answer, scripts)
	return len(data), nil
}

func (c *elsewhere) Read(into []byte) (int, error) {
	if c.due == "" {
		return c.Conn.Read(into)
	}
	n := copy(into, c.due)
	c.due = c.due[n:]
	return n, nil
}

// newMoving is a Cluster client. The first node answers scripts of a test with the name of the other node, and that one
// cannot be reached, hangs or breaks when they come.
func newMoving(t *testing.T, answer, what string) *nodes {
	n := newNodes(t)
	n.dialled = func(addr string, conn net.Conn) (net.Conn, error) {
		switch {
		case addr == hangs:
			return &elsewhere{Conn: conn, answer: "-" + answer + " 12182 " + works + "\r\n"}, nil
		case what == "cannot be reached":
			return nil, errRefused
		}
		return deaf{conn, new(atomic.Int64), what == "hangs"}, nil
	}
	return n
}

// A node sends calls on to another one, which cannot be reached, or has them and hangs, or breaks the connection. In the
// latter cases nobody knows whether they ran. Each was still sent to one node only, as far as one may have run it.
func TestCallsThatAreSentOnAndNotAnswered(t *testing.T) {
	for _, answer := range []string{"ASK", "MOVED"} {
		for what, want := range map[string]ErrorClass{"cannot be reached": NotNow, "hangs": Unknown, "breaks": Unknown} {
			for _, n := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s, %s, %d", answer, what, n), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c := newReady(t, newMoving(t, answer, what))
						defer c.Settle()
						calls, errs := make([]*Call, n), make([]error, n)
						for i := range calls {
							calls[i] = echoed(keysOf[hangs], i)
							calls[i].Done = func(_ []int64, err error) { errs[i] = err }
						}
						c.Send(t.Context(), calls)
						for i, err := range errs {
							redistest.Check(t, Classify(err) == want && !calls[i].Copied(), "%v, class %v, copied: %v; want class %v",
								err, Classify(err), calls[i].Copied(), want)
						}
					})
				})
			}
		}
	}
}

// The same, of look-ups: that is no answer, and those that follow do not hold up the look-ups of the first node.
func TestLookUpsThatAreSentOnAndNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newReady(t, newMoving(t, "ASK", "hangs"))
		defer c.Settle()
		key := "{" + keysOf[hangs] + "}" + echo.sha
		for _, one := range c.GetMany(c.Brief(), []string{key, key}) {
			redistest.Check(t, one.Err != nil && !HasAnswer(one.Err), "%v; want no answer", one.Err)
		}
		redistest.Expect(t, c.Node(key), hangs+" to "+works, "the key is at %s")
	})
}
