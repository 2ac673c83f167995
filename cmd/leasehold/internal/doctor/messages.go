package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
)

const rounds = 20

// messages times how long a message takes to arrive. Waiters are told of their turn by one.
func (v *visit) messages(ctx context.Context) {
	const check = "messages"
	channel, pattern := v.inbox("leasehold-doctor-" + rand.Text())
	subscribe, publish, sharded := v.rdb.Subscribe, v.rdb.Publish, ""
	if v.inCluster() {
		subscribe, publish, sharded = v.rdb.SSubscribe, v.rdb.SPublish, "s"
	}
	bad := func(says string) {
		v.find(Finding{
			check, Bad, says,
			"Waiters are not told of their turn: they find out by asking, every 1.5 s. What they hold is as safe as ever.",
			fmt.Sprintf("Connect to the server itself, or let the proxy pass %[1]sSUBSCRIBE and %[1]sPUBLISH; allow +%[2]ssubscribe +%[2]sunsubscribe +%[2]spublish %[3]s.", strings.ToUpper(sharded), sharded, pattern),
		})
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	sub := subscribe(ctx, channel)
	defer sub.Close()
	if _, err := sub.ReceiveTimeout(ctx, timeBound); err != nil {
		bad("no subscription comes about: " + err.Error())
		return
	}
	var took []time.Duration
	for i := range rounds {
		began := time.Now()
		if err := publish(ctx, channel, strconv.Itoa(i)).Err(); err != nil {
			bad("nothing can be published: " + err.Error())
			return
		}
		if _, err := sub.ReceiveMessage(ctx); err != nil {
			bad("messages do not arrive")
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	f := Finding{Check: check, Grade: Good, Says: fmt.Sprintf("a message takes %s, at most %s of %d", text.Duration(took[len(took)/2]), text.Duration(took[len(took)-1]), len(took))}
	if took[len(took)/2] > 100*time.Millisecond {
		f.Grade, f.Means = Note, "Each hand-over to a waiter takes that long."
	}
	v.find(f)
}

// promises says which promises hold, by what was found.
func (v *visit) promises() {
	add := func(promise string, grade Grade, because string) {
		v.Promises = append(v.Promises, Promise{promise, grade, because})
	}
	if v.grade("version") == Bad || v.grade("rights") == Bad {
		add("Anything at all", Bad, "the server is too old, or the user lacks rights")
	}
	if v.grade("version") == Unknown || v.grade("rights") == Unknown {
		add("Anything at all", Unknown, "the server's version or the user's rights could not be found out")
	}
	const limit = "Never more holders than the limit"
	switch {
	case v.grade("eviction") == Bad:
		add(limit, Bad, "the server may evict leases")
	case v.grade("persistence") == Bad:
		add(limit, Bad, "a restart forgets them all")
	case v.grade("persistence") == Note || v.followed():
		add(limit, Note, "but for the last grants before a crash or a failover")
	case v.grade("persistence") == Unknown || v.grade("eviction") == Unknown:
		add(limit, Unknown, "the server does not tell its settings")
	default:
		add(limit, Good, "while the server runs")
	}
	// by says of a promise what a check means for it.
	by := func(promise, check string, bad Grade, ifBad, ifUnknown, ifGood string) {
		switch v.grade(check) {
		case Bad:
			add(promise, bad, ifBad)
		case Unknown:
			add(promise, Unknown, ifUnknown)
		default:
			add(promise, Good, ifGood)
		}
	}
	const untold = "a server does not tell its clock"
	by("Tokens never fall", "clock", Note, "as long as clocks do not go back by more than the time since the last grant; they are apart", untold, "through restart, eviction and failover, by the servers' clocks")
	by("Waiters are served in order, at once", "messages", Bad, "in order yes, but only by asking, every 1.5 s", "no message could be sent", "")
	by("A dead holder is missed for its TTL", "clock", Bad, "after a failover it may be more or less", untold, "")
}

func (v *visit) followed() bool {
	for _, n := range v.nodes {
		if len(n.replicas()) > 0 {
			return true
		}
	}
	return false
}
