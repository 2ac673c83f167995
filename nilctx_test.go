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
	sem, err := semaphore.New(rdb, semaphore.Config{Name: "f", Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	mtx, err := mutex.New(rdb, mutex.Config{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	flight, err := singleflight.New(rdb, singleflight.Config[string]{Name: "f", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := mutex.NewGuard(rdb, mutex.GuardConfig{Name: "f"})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := sem.Acquire(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := mtx.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
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
					if text, _ := recover().(string); !strings.HasPrefix(text, "leasehold: nil ctx") {
						t.Errorf("%s panicked with %q", name, text)
					}
				}()
				if method.Type().IsVariadic() {
					method.CallSlice(args)
				} else {
					method.Call(args)
				}
			}()
		}
	}
	if n < 20 {
		t.Errorf("%d methods take a ctx", n)
	}
	for _, end := range []func() error{lease.Release, lock.Unlock} {
		if err := end(); err != nil {
			t.Error(err)
		}
	}
	for _, h := range []interface{ Close(context.Context) error }{sem, mtx, flight} {
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
