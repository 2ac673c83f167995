package leasehold_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

type handle interface {
	Close(context.Context) error
	Shutdown(context.Context) error
}

// open makes a handle of each package.
func open(t *testing.T, rdb redis.UniversalClient) (*semaphore.Semaphore, *mutex.Mutex, *singleflight.Group[string], *mutex.Guard) {
	t.Helper()
	sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "f", Limit: 3, KeepFor: time.Second}))(t)
	mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: "f"}))(t)
	flight := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "f", TTL: time.Minute, NearFor: time.Second}))(t)
	for _, h := range []handle{sem, mtx, flight} {
		t.Cleanup(func() { _ = h.Close(context.Background()) })
	}
	return sem, mtx, flight, redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: "f"}))(t)
}

// Once a Close has returned nil, another one has nothing to wait for, whatever its ctx.
func TestCloseAfterClose(t *testing.T) {
	rdb := redistest.MiniClient(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // of two things that are ready, a select takes any
		sem, mtx, flight, _ := open(t, rdb)
		for _, h := range []handle{sem, mtx, flight} {
			redistest.NoError(t, h.Close(t.Context()))
			redistest.NoError(t, h.Close(ended))
			redistest.NoError(t, h.Shutdown(ended))
		}
	}
}

// Each public method that takes a ctx refuses a nil one at the call, by one sentence.
func TestNilCtxIsRefused(t *testing.T) {
	sem, mtx, flight, guard := open(t, redistest.MiniClient(t))
	lease := redistest.Must(sem.Acquire(t.Context(), "k"))(t)
	lock := redistest.Must(mtx.Lock(t.Context(), "k"))(t)
	ctxType := reflect.TypeFor[context.Context]()
	n := 0
	for _, on := range []any{sem, mtx, flight, guard, lease, lock} {
		v := reflect.ValueOf(on)
		for i := range v.NumMethod() {
			method, name := v.Method(i), v.Type().String()+"."+v.Type().Method(i).Name
			if method.Type().NumIn() == 0 || method.Type().In(0) != ctxType {
				continue
			}
			n++
			var args []reflect.Value
			for j := range method.Type().NumIn() {
				args = append(args, reflect.Zero(method.Type().In(j)))
			}
			func() {
				defer func() {
					text, _ := recover().(string)
					redistest.Check(t, strings.HasPrefix(text, "leasehold: nil ctx"), "%s panicked with %q", name, text)
				}()
				if method.Type().IsVariadic() {
					method.CallSlice(args)
				} else {
					method.Call(args)
				}
			}()
		}
	}
	redistest.Check(t, n >= 20, "%d methods take a ctx", n)
	redistest.NoError(t, lease.Release())
	redistest.NoError(t, lock.Unlock())
}
