package quorum

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/inbox"
)

// newInbox makes the subscription of a handle on one server.
func (s *server) newInbox() *inbox.Inbox {
	subscribe := func(ctx context.Context) *redis.PubSub { return s.client.Subscribe(ctx, s.f.keys.Inbox(s.f.handle)) }
	return inbox.New(subscribe, s.message, s.subscribed)
}

// Watch opens the subscriptions. Messages of a server are heard from the time on that its
// subscription exists, and then its votes are asked for; the result is zero, so that the manager
// asks once more, unless all exist.
func (f *Family) Watch(key string) (since time.Time) {
	all := true
	for _, s := range f.servers {
		from := s.inbox.Watch(key)
		if all = all && !from.IsZero(); from.After(since) {
			since = from
		}
	}
	if !all {
		return time.Time{}
	}
	return since
}

func (f *Family) Unwatch(key string) {
	for _, s := range f.servers {
		s.inbox.Unwatch(key)
	}
}

// Close ends the subscriptions.
func (f *Family) Close() {
	for _, s := range f.servers {
		s.inbox.Close()
	}
}

// message takes a message: the number of an attempt that has got a vote here, or has one and is to
// let an earlier ticket go first. Anybody who may publish can forge it, so the voter asks. A
// revocation is for the manager.
func (s *server) message(text string) {
	if strings.HasPrefix(text, "R ") {
		s.f.message(text)
		return
	}
	seq, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return
	}
	s.f.mu.Lock()
	v := s.f.voters[seq]
	s.f.mu.Unlock()
	if v != nil {
		v.onHint(s.i)
	}
}

// subscribed is called on each new subscription: messages may have been missed.
func (s *server) subscribed() {
	s.f.each(func(v *voter) { v.onHint(s.i) })
	s.f.subscribed()
}
