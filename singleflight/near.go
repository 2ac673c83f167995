package singleflight

import (
	"context"
	"errors"
	"slices"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/near"
)

// openNear makes what the handle needs for copies in memory: its own, with NearFor, and in any
// case those of other processes, which its invalidations wait for.
func (g *Group[T]) openNear() {
	suffix, _ := keys.LabelSuffix(g.cfg.Label) // New has checked it
	g.line = near.NewLine(g.manager.Client(), g.family, suffix)
	if g.cfg.NearFor == 0 {
		return
	}
	g.near = near.NewCache(g.manager.Client(), g.line, near.Config{
		For: g.cfg.NearFor, Bytes: g.cfg.NearBytes, StaleIfError: g.cfg.StaleIfError,
		Schema: g.cfg.Schema, MaxValue: g.cfg.MaxValueBytes,
	})
}

// inMemory looks for a copy in the memory of this process that may be served.
func (g *Group[T]) inMemory(ctx context.Context, key string) (seen look[T], ok bool) {
	if g.near == nil || ctx.Err() != nil || g.closed.Load() {
		return look[T]{}, false
	}
	found, age := g.near.Find(key)
	if found == nil {
		return look[T]{}, false
	}
	seen = look[T]{verdict: hit, result: Result[T]{Source: Near, Age: age}, copy: found}
	switch {
	case found.Env.Kind == envelope.NotFound:
		seen.errs = errsNotFound
		return seen, true
	case g.isString:
		seen.result.Value = fromString[T](found.Env.Payload)
	default:
		value, err := g.decode(ctx, found.Env.Payload)
		if err != nil { // ctx has ended, or the call goes on to Redis, which reports it
			return look[T]{}, false
		}
		seen.result.Value = value
	}
	if g.cfg.EarlyRefresh > 0 && !found.Refreshing.Load() && g.refreshesEarly(entry{env: found.Env, age: age}) {
		seen.verdict, seen.rejected = hitAndEarly, loads.Rejected{Value: found.Head}
	}
	return seen, true
}

// errsNotFound is allocated once.
var errsNotFound = []error{ErrNotFound}

// unobtained is the look of a call that could not ask Redis. A copy in memory is served as a
// stale value; under LoadLocally only if the local load fails. An invalidation by another
// process, made since this process last heard from Redis about the key, is not known here.
func (g *Group[T]) unobtained(ctx context.Context, key string, errs []error) look[T] {
	seen := look[T]{verdict: unobtainable, errs: errs}
	if g.near == nil || ctx.Err() != nil {
		return seen
	}
	found, age := g.near.FindStale(key)
	if found == nil {
		return seen
	}
	value, err := g.decode(ctx, found.Env.Payload)
	switch old := (Result[T]{Value: value, Source: Stale, Age: age}); {
	case err != nil:
	case g.cfg.OnUnavailable == LoadLocally:
		seen.stale = &old
	default:
		return look[T]{verdict: hit, result: old}
	}
	return seen
}

// seen notes what a look-up found in Redis, before its call returns. raw is "" if there was
// nothing.
func (g *Group[T]) seen(t target, raw string, e entry) {
	if g.near == nil {
		return
	}
	size := 0
	if e.fresh() {
		size = len(raw)
	}
	g.near.Seen(near.Key{Resource: t.Resource, Name: t.key, Value: t.value}, envelope.Head(raw), size)
}

// numbered numbers a call that drops a value, so that readers can acknowledge it. A handle that
// keeps no copies seldom meets any. Its calls carry nothing more, and it has readers told by
// another call.
func (g *Group[T]) numbered() (*near.Told, loads.Acknowledge) {
	if g.near == nil {
		return nil, loads.Acknowledge{}
	}
	told := g.line.Writer.Begin()
	return told, told.Ack
}

// found notes the processes with copies in memory that the reply to a call lists.
func (g *Group[T]) found(d *drop, told *near.Told, one *call.Call, reply loads.Dropped) {
	if told = g.line.Writer.Replied(told, loads.Near(d.Resource), one.Sent, reply); told != nil {
		d.told = append(d.told, told)
	}
}

// awaitReaders waits until no process can serve an old copy of what was dropped. Each call that
// dropped something has listed the readers anew, because a reader of another schema may have
// registered after the first of them.
func (g *Group[T]) awaitReaders(all []*drop, stop <-chan struct{}) {
	var told []*near.Told
	for _, d := range all {
		if d.dropped.Load() {
			told = append(told, d.told...)
		}
		defer func() {
			for _, t := range d.told {
				g.line.Writer.End(t)
			}
		}()
	}
	if len(told) > 0 && !g.line.Writer.Await(told, stop, g.manager.Closing()) {
		return
	}
	for _, d := range all {
		d.done.Store(d.dropped.Load())
	}
}

// outdates reports whether an outcome tells its callers of a value that may be newer than a
// copy in memory, or that there is none any more.
func (o outcome[T]) outdates() bool {
	switch {
	case o.raised != nil:
		return false
	case o.failed != nil:
		return o.failed.kind == envelope.NotFound
	}
	return o.errs == nil || slices.Contains(o.errs, ErrNotFound)
}

// fromString makes a T, which is string, of a text without an allocation.
func fromString[T any](text string) (v T) {
	if p, ok := any(&v).(*string); ok {
		*p = text
	}
	return v
}

var errUnderWay = errors.New("a call, a registration or a subscription was under way")

// errReaders says that an invalidation is done in Redis, and that a process did not say in time
// that it dropped its copy.
var errReaders = errors.New("a process may still serve a copy from memory, for up to its NearFor")
