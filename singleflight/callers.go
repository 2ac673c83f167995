package singleflight

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/nested"
)

// callersCode is code of callers: a loader, TTLFor, a codec, the methods of a value or of an
// error. It may panic, call runtime.Goexit or block, so it runs on a goroutine of its own. It
// leaves plain data behind: nothing that is done with that runs code of callers again.
type callersCode struct {
	runs string // what runs now; an error about it begins with this
}

// raised is a panic, or a call of runtime.Goexit.
type raised struct {
	text   string // what ended this way, and how
	goexit bool
	value  any // of the panic
	stack  []byte
}

func (r *raised) err() error {
	if r == nil {
		return nil
	}
	return errors.New(r.text)
}

// run is a goroutine that runs code, and then ended, however code ends. r is nil if code returned.
func (c *callersCode) run(code func(), ended func(r *raised)) {
	var r *raised
	// The text of a panic may come from a method of its value, which may do the same
	// again. So ended is deferred by itself.
	defer func() { _ = recover(); ended(r) }()
	returned := false
	defer func() {
		if returned {
			return
		}
		r = &raised{text: errorText(c.runs + " called runtime.Goexit"), goexit: true}
		if v := recover(); v != nil {
			r = &raised{text: errorText(fmt.Sprintf("%s panicked with a %T", c.runs, v)), value: v, stack: debug.Stack()}
			r.text = errorText(c.runs + " panicked: " + panicText(v))
		}
	}()
	code()
	returned = true
}

// contain runs code and waits for its end. ended is why code did not return. If ctx or closing ends
// first, left says so, and code goes on: what it writes must not be looked at.
func contain(ctx context.Context, closing <-chan struct{}, code func(c *callersCode)) (ended, left error) {
	var c callersCode
	ends := make(chan error, 1)
	go c.run(func() { code(&c) }, func(r *raised) { ends <- r.err() })
	select {
	case ended = <-ends:
		return ended, nil
	case <-ctx.Done():
		return nil, nested.Calm{Context: ctx}.Err() // never nil: nothing was left behind yet
	case <-closing:
		return nil, leasehold.ErrClosed
	}
}

// panicText returns the text of a panic's value. A value that may contain itself is not walked through: its text could
// overflow the stack, and others may be changing it.
func panicText(v any) string {
	switch v.(type) {
	case error, fmt.Stringer: // a method makes the text
	default:
		if !codec.IsShallow(reflect.TypeOf(v)) {
			return fmt.Sprintf("a %T", v)
		}
	}
	return fmt.Sprint(v)
}

// fixedError is an error of callers with a text that is fixed. Its other methods run only if a
// caller asks for its chain.
type fixedError struct {
	text string
	err  error
}

func (e *fixedError) Error() string { return e.text }
func (e *fixedError) Unwrap() error { return e.err }

// fix returns err with its present text. of says whose error it is.
func (c *callersCode) fix(of string, err error) *fixedError {
	c.runs = fmt.Sprintf("the method Error of %s (%T)", of, err)
	return &fixedError{err.Error(), err}
}

type product[T any] struct {
	parts   map[string]part[T] // by key: what the loader returned
	failed  *failure           // what the other keys get; nil: ErrNotFound
	raised  *raised            // the loader or TTLFor raised this; then there is nothing else
	took    time.Duration      // of the loader alone
	refused error              // why the loader was not called
}

type part[T any] struct {
	value    T
	ttl      time.Duration
	data     string // the encoded value
	encoding error  // why there is none
}

// failure is an outcome without a value, as plain data.
type failure struct {
	err     error         // what callers in this process get
	kind    envelope.Kind // NotFound, Timeout, Failure or Unmarshalable
	payload string        // what other processes get
}

// notFound is the failure of a key that is missing in the map that a loader returned.
var notFound = &failure{err: ErrNotFound, kind: envelope.NotFound}

// timedOut is the failure of a load that took longer than LoadTimeout.
var timedOut = &failure{err: errLoadTimeout, kind: envelope.Timeout, payload: errLoadTimeout.Error()}

// produce calls the loader, and does all that a load needs of its callers' code, on one
// goroutine. If the Observer has replaced ctx, the loader gets that one, with the deadline of ctx.
func (d *load[T]) produce(ctx, replaced context.Context) <-chan product[T] {
	var (
		c      = &callersCode{runs: "the Observer's ctx"}
		p      product[T]
		err    error // the loader's
		loaded bool  // the loader and TTLFor have returned
		began  = time.Now()
	)
	products := make(chan product[T], 1)
	returned := make(chan struct{})
	d.returned = returned
	code := func() {
		var values map[string]T
		if at, bounded := ctx.Deadline(); bounded && replaced != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadlineCause(replaced, at, ErrLoadTimeout)
			defer cancel()
		} else if replaced != nil {
			ctx = replaced
		}
		c.runs = "the loader"
		values, err = d.loader(ctx, slices.Clone(d.keys))
		p.took = time.Since(began)
		p.parts = d.partsOf(c, values)
		loaded = true
		for key, one := range p.parts {
			one.data, one.encoding = d.g.encode(c, one.value)
			p.parts[key] = one
		}
		if err != nil {
			p.failed = d.lookAt(ctx, c, err)
		}
	}
	ended := func(r *raised) {
		d.g.running.Add(-1)
		switch {
		case r != nil && !loaded:
			p = product[T]{raised: r, took: time.Since(began)}
		case r != nil:
			ended := r.err()
			for key, one := range p.parts {
				if one.encoding == errNotEncoded {
					one.encoding = ended
					p.parts[key] = one
				}
			}
			if err != nil {
				p.failed = &failure{ended, envelope.Failure, ended.Error()}
			}
		}
		products <- p
		close(returned)
	}
	d.g.running.Add(1)
	d.g.active.Go(func() { c.run(code, ended) })
	return products
}

// errNotEncoded is in parts that are not encoded yet.
var errNotEncoded = errors.New("not encoded")

// partsOf takes the values that the loader was asked for out of its map, because the loader
// may go on changing the map. It asks TTLFor about each of them.
func (d *load[T]) partsOf(c *callersCode, values map[string]T) map[string]part[T] {
	parts := map[string]part[T]{}
	for _, key := range d.keys {
		if v, ok := values[key]; ok {
			parts[key] = part[T]{value: v, encoding: errNotEncoded}
		}
	}
	if d.g.cfg.TTLFor != nil {
		c.runs = "TTLFor"
	}
	for key, one := range parts {
		one.ttl = d.g.ttl(key, one.value)
		parts[key] = one
	}
	return parts
}

// lookAt asks the loader's error all that is needed of it.
func (d *load[T]) lookAt(ctx context.Context, c *callersCode, err error) *failure {
	fixed := c.fix("the loader's error", err)
	c.runs = fmt.Sprintf("the method Is or Unwrap of the loader's error (%T)", err)
	if context.Cause(ctx) == ErrLoadTimeout {
		return timedOut // whatever the loader makes of it; a caller must not take a deadline for its own
	}
	kind, matched := envelope.Failure, ""
	switch {
	case errors.Is(err, ErrNotFound):
		kind = envelope.NotFound
	case errors.Is(err, ErrLoadTimeout):
		kind = envelope.Timeout
	}
	for _, s := range d.g.sentinels {
		if errors.Is(err, s.err) {
			matched += separator + s.text
		}
	}
	return &failure{err: fixed, kind: kind, payload: errorText(fixed.text) + matched}
}
