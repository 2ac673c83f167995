package redistest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestProxyDropsMessagesOnly(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *Proxy, rdb *redis.Client, opt func(*redis.Options)) {
		channel, pattern := Name(t), Name(t)
		sub := p.Client(opt).Subscribe(t.Context(), channel)
		defer sub.Close()
		receive := func() any { return Must(sub.Receive(t.Context()))(t) }
		receive()
		publish := func(to, text string) {
			Require(t, Must(rdb.Publish(t.Context(), to, text).Result())(t), 1, "published to %d")
		}
		p.DropMessages(true)
		publish(channel, "lost")
		WantErr(t, sub.PSubscribe(t.Context(), pattern+"*"))
		if s, ok := receive().(*redis.Subscription); !ok || s.Channel != pattern+"*" {
			t.Fatalf("instead of the confirmation: %v", s)
		}
		publish(pattern+"x", "lost")
		WantErr(t, sub.Ping(t.Context()))
		if m, ok := receive().(*redis.Pong); !ok {
			t.Fatalf("instead of the pong: %v", m)
		}
		// An embedded server sends messages and replies in any order.
		Eventually(t, "the messages", func() bool { return p.Dropped() == 2 })
		p.DropMessages(false)
		publish(channel, "kept")
		if m, ok := receive().(*redis.Message); !ok || m.Payload != "kept" {
			t.Fatalf("instead of the message: %v", m)
		}
		publish(pattern+"x", "kept too")
		if m, ok := receive().(*redis.Message); !ok || m.Payload != "kept too" {
			t.Fatalf("instead of the message: %v", m)
		}
	})
}

// Confirmations must be paired with their commands, or later replies would be taken for those of other commands.
func TestProxyPairsRepliesBehindSubscriptions(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *Proxy, _ *redis.Client, opt func(*redis.Options)) {
		a, b := Name(t), Name(t)
		seen := make(chan string, 100)
		sub := p.Client(opt).Subscribe(t.Context())
		defer sub.Close()
		if err := sub.Ping(t.Context()); err != nil { // opens the connection
			t.Fatal(err)
		}
		Must(sub.Receive(t.Context()))(t)
		p.SetHook(func(ev Event) Action {
			if ev.Stage == OnReply {
				seen <- ev.Name()
			}
			return Pass
		})
		WantErr(t, sub.Subscribe(t.Context(), a, b))
		WantErr(t, sub.PSubscribe(t.Context(), a+"*"))
		WantErr(t, sub.Unsubscribe(t.Context()))
		WantErr(t, sub.Unsubscribe(t.Context()))
		WantErr(t, sub.Ping(t.Context()))
		for _, want := range []string{"SUBSCRIBE", "SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE", "UNSUBSCRIBE", "PING"} {
			Must(sub.Receive(t.Context()))(t)
			Require(t, <-seen, want, "a reply to %s was paired with %s", want)
		}
	})
}

// cutAndLeave sends a SET into a cut network and closes the connection.
func cutAndLeave(t *testing.T, p *Proxy, key string, opt func(*redis.Options)) {
	t.Helper()
	hasty := impatient(t, p, opt)
	left := make(chan struct{})
	p.SetHook(func(ev Event) Action {
		if ev.Name() == "SET" && ev.Stage == OnRequest {
			close(left)
		}
		return Pass
	})
	defer p.SetHook(nil)
	p.Cut(true, false)
	CheckNow(t, hasty.Set(t.Context(), key, "stray", 0).Err() != nil, "a reply came through")
	<-left
	_ = hasty.Close()
	Eventually(t, "the end of the connection", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			if c.clientLeft.Load() {
				return true
			}
		}
		return false
	})
}

// What a client sent into a cut network before it left is discarded by Heal, and delivered by HealLate.
func TestProxyHealsWithAndWithoutStrays(t *testing.T) {
	eachProxy(t, func(t *testing.T, p *Proxy, rdb *redis.Client, opt func(*redis.Options)) {
		key := Name(t)
		cutAndLeave(t, p, key, opt)
		p.Heal()
		Eventually(t, "the end of the closed connection", func() bool { return p.Conns() == 1 })
		WantErr(t, rdb.Get(t.Context(), key).Err(), redis.Nil)
		cutAndLeave(t, p, key, opt)
		p.HealLate()
		Eventually(t, "the stray request", func() bool { return rdb.Get(t.Context(), key).Val() == "stray" })
		Eventually(t, "the end of the closed connection", func() bool { return p.Conns() == 1 })
	})
}
