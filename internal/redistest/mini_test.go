package redistest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestBubbleClockExpiresKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := Bubble(t)
		rdb := client()
		start := time.Now()
		if err := rdb.Set(t.Context(), "k", "v", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Millisecond)
		if err := rdb.Get(t.Context(), "k").Err(); err != nil {
			t.Fatalf("gone before its time: %v", err)
		}
		time.Sleep(time.Millisecond)
		if err := rdb.Get(t.Context(), "k").Err(); err != redis.Nil {
			t.Fatalf("there after its time: %v", err)
		}
		if now, err := rdb.Time(t.Context()).Result(); err != nil || !now.Equal(start.Add(time.Hour)) {
			t.Fatalf("the server's clock shows %v, %v", now, err)
		}
	})
}

func TestBubbleDeliversMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := Bubble(t)
		sub := client().Subscribe(t.Context(), "c")
		defer sub.Close()
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := make(chan string)
		go func() { got <- (<-sub.Channel()).Payload }()
		time.Sleep(time.Minute)
		if n, err := client().Publish(t.Context(), "c", "hello").Result(); err != nil || n != 1 {
			t.Fatalf("published to %d, %v", n, err)
		}
		if m := <-got; m != "hello" {
			t.Fatalf("received %q", m)
		}
	})
}

func TestMiniExpiresKeysByItself(t *testing.T) {
	m := Mini(t)
	rdb := newClient(t, m.Addr(), nil)
	if err := rdb.Set(t.Context(), "k", "v", 20*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); rdb.Get(t.Context(), "k").Err() != redis.Nil; {
		if time.Now().After(deadline) {
			t.Fatal("never expired")
		}
	}
}
