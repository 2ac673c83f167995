package redistest

import (
	"context"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// SlotMove is a live move of one slot to another primary, in steps, each of which leaves clients in another
// situation: after BeginMove keys that are not there are asked for at the target (ASK), after MoveKeys all of
// them are, and after Finish the target is the owner (MOVED).
type SlotMove struct {
	c        *Cluster
	slot     int64
	from, to *Server
}

// BeginMove opens the slot of key for a move to another primary. The Cluster must be the test's own.
func (c *Cluster) BeginMove(key string, to *Server) *SlotMove {
	c.tb.Helper()
	from := c.NodeFor(key)
	if !from.mine("BeginMove") {
		c.tb.FailNow()
	}
	m := &SlotMove{c: c, from: from, to: to}
	m.on(from, func(ctx context.Context, rdb *redis.Client) (err error) {
		m.slot, err = rdb.ClusterKeySlot(ctx, key).Result()
		return err
	})
	m.setSlot(to, "IMPORTING", m.id(from))
	m.setSlot(from, "MIGRATING", m.id(to))
	return m
}

// MoveKeys moves the keys that the slot holds now.
func (m *SlotMove) MoveKeys() {
	m.c.tb.Helper()
	m.on(m.from, func(ctx context.Context, rdb *redis.Client) error {
		for {
			keys, err := rdb.ClusterGetKeysInSlot(ctx, int(m.slot), 100).Result()
			if err != nil || len(keys) == 0 {
				return err
			}
			migrate := []any{"MIGRATE", "127.0.0.1", strconv.Itoa(m.to.port), "", "0", "5000", "KEYS"}
			for _, key := range keys {
				migrate = append(migrate, key)
			}
			if err := rdb.Do(ctx, migrate...).Err(); err != nil {
				return err
			}
		}
	})
}

// Finish gives the slot to the target. The keys must have been moved. Target
// first: for a moment both nodes answer for it, rather than none.
func (m *SlotMove) Finish() {
	m.c.tb.Helper()
	id := m.id(m.to)
	m.setSlot(m.to, "NODE", id)
	m.setSlot(m.from, "NODE", id)
}

// MoveSlot moves the slot of key, and what it holds, to another primary.
func (c *Cluster) MoveSlot(key string, to *Server) {
	c.tb.Helper()
	m := c.BeginMove(key, to)
	m.MoveKeys()
	m.Finish()
}

func (m *SlotMove) setSlot(node *Server, state, id string) {
	m.c.tb.Helper()
	m.on(node, func(ctx context.Context, rdb *redis.Client) error {
		return rdb.Do(ctx, "CLUSTER", "SETSLOT", m.slot, state, id).Err()
	})
}

func (m *SlotMove) id(node *Server) (id string) {
	m.c.tb.Helper()
	m.on(node, func(ctx context.Context, rdb *redis.Client) (err error) {
		id, err = rdb.Do(ctx, "CLUSTER", "MYID").Text()
		return err
	})
	return id
}

func (m *SlotMove) on(node *Server, do func(context.Context, *redis.Client) error) {
	m.c.tb.Helper()
	rdb := node.client(startTimeout)
	defer rdb.Close()
	Require(m.c.tb, do(m.c.tb.Context(), rdb), nil, "move slot %d from %s to %s: %v", m.slot, m.from.Addr(), m.to.Addr())
}
