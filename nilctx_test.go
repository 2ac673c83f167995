package leasehold_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
	"github.com/leasehold-go/leasehold/singleflight"
)

// Each public method that takes a ctx refuses a nil one at the call, by one sentence.
func TestNilCtxIsRefused(t *testing.T) {
	rdb := redistest.NewProxy(t, redistest.Mini(t).Addr()).Client()
	sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "f", Limit: 1}))(t)
	mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: "f"}))(t)
	flight := redistest.Must(singleflight.New(rdb, singleflight.Config[string]{Name: "f", TTL: time.Minute}))(t)
	guard := redistest.Must(mutex.NewGuard(rdb, mutex.GuardConfig{Name: "f"}))(t)
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
	for _, end := range []func() error{lease.Release, lock.Unlock} {
		redistest.NoError(t, end())
	}
	for _, h := range []interface{ Close(context.Context) error }{sem, mtx, flight} {
		redistest.NoError(t, h.Close(t.Context()))
	}
}
