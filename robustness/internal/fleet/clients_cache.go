package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/robustness/internal/history"
)

func (c *client) useValue() {
	switch c.rng.IntN(12) {
	case 0:
		c.invalidate()
	case 1:
		c.fetchMany()
	default:
		_ = c.fetch(c.key("c", values))
	}
}

func (c *client) invalidate() {
	keys := []string{c.key("c", values)}
	if c.rng.IntN(3) == 0 {
		keys = []string{"c0", "c1"}
	}
	ctx, cancel := c.ctx()
	defer cancel()
	id := c.begin(history.Event{Op: history.Invalidate, Keys: keys})
	c.returned(id, history.Event{}, c.group.Invalidate(ctx, keys...))
}

func (c *client) fetch(key string) error {
	ctx, cancel := c.ctx()
	defer cancel()
	var id int
	load := c.loader(key, &id, false)
	id = c.begin(history.Event{Op: history.Read, Keys: []string{key}})
	value, err := c.group.Do(ctx, key, load)
	c.returned(id, history.Event{Values: seen(map[string]string{key: value})}, err)
	return err
}

func (c *client) fetchMany() {
	ctx, cancel := c.ctx()
	defer cancel()
	var id int
	var keys []string
	loads := map[string]func(context.Context) (string, error){}
	for i := range values {
		key := fmt.Sprint("c", i)
		keys, loads[key] = append(keys, key), c.loader(key, &id, true)
	}
	id = c.begin(history.Event{Op: history.Read, Keys: keys, Many: true})
	found, err := c.group.DoMany(ctx, keys, func(ctx context.Context, missing []string) (map[string]string, error) {
		got := map[string]string{}
		for _, key := range missing {
			value, err := loads[key](ctx)
			if err != nil {
				return nil, err
			}
			got[key] = value
		}
		return got, nil
	})
	// Some keys may be found where others failed.
	c.returned(id, history.Event{Values: seen(found)}, err)
}

// seen are values without what makes them long.
func seen(found map[string]string) map[string]string {
	all := map[string]string{}
	for key, value := range found {
		if value = strings.TrimRight(value, "~"); value != "" {
			all[key] = value
		}
	}
	return all
}

// loader makes one for the read that will have that ID. Its value names its load.
// Its choices are made here: it runs on another goroutine.
func (c *client) loader(key string, read *int, many bool) func(context.Context) (string, error) {
	d := time.Duration(c.rng.IntN(15_000)) * time.Microsecond
	if !c.final && c.rng.IntN(30) == 0 {
		d = time.Duration(float64(c.Terms.TTL) * (0.5 + c.rng.Float64()))
	}
	heeds := c.rng.IntN(2) == 0
	tail := ""
	if c.rng.IntN(3) == 0 {
		tail = strings.Repeat("~", 6000) // too long to ride on a message
	}
	return func(ctx context.Context) (string, error) {
		id := c.call(history.Event{Op: history.Load, Key: key, Client: c.number, For: *read, Many: many})
		stop := c.watch(id, ctx, nil)
		defer stop()
		var err error
		select {
		case <-time.After(d):
		case <-ctx.Done():
			if heeds {
				err = errGaveUp
			} else {
				time.Sleep(d / 4) // and comes too late
			}
		}
		c.returned(id, history.Event{}, err)
		return fmt.Sprintf("%s.%d%s", c.Worker, id, tail), err
	}
}
