package leaseholdtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/leaseholdtest"
)

// A pipeline reaches the server as a whole, however long it and its replies are.
func TestLongPipeline(t *testing.T) {
	both(t, func(t *testing.T) {
		rdb := leaseholdtest.Client(t)
		for _, c := range []struct{ commands, bytes int }{{11, 400}, {1000, 10}, {1000, 4096}, {3, 2 << 20}} {
			value := strings.Repeat("v", c.bytes)
			sent, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
				for i := range c.commands {
					p.Set(t.Context(), fmt.Sprint("k", i), value, 0)
					p.Get(t.Context(), fmt.Sprint("k", i))
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d commands with %d bytes each: %v", c.commands, c.bytes, err)
				continue
			}
			for i, cmd := range sent {
				if get, ok := cmd.(*redis.StringCmd); ok && get.Val() != value {
					t.Errorf("command %d of %d with %d bytes each: another value", i, c.commands, c.bytes)
				}
			}
		}
	})
}
