package redistest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Soon bounds the wait for what happens at once on an idle machine. It is far
// below the default TTL, so that nothing passes by a lease's expiry alone.
const Soon = 10 * time.Second

// Eventually waits until ok holds.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for began := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		CheckNow(tb, !Over(began, Soon), "waited %v for %s", Soon, what)
	}
}

// Get receives one value, soon.
func Get[T any](tb testing.TB, what string, from <-chan T) T {
	tb.Helper()
	for began := time.Now(); ; {
		select {
		case v := <-from:
			return v
		case <-time.After(Soon):
			CheckNow(tb, !Over(began, Soon), "waited %v for %s", Soon, what)
		}
	}
}

// Must returns what a call returned that may not fail: Must(call())(t).
func Must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return v
	}
}

// Gives fails the test, which goes on, unless a call returned want and no error: Gives(call())(t, want).
func Gives[T comparable](v T, err error) func(tb testing.TB, want T) {
	return func(tb testing.TB, want T) {
		tb.Helper()
		if v != want || err != nil {
			tb.Errorf("got %v, %v; want %v", v, err, want)
		}
	}
}

// Expect fails the test, which goes on, unless got is want. What says what was compared, with
// args; its last verb may be for got.
func Expect[T comparable](tb testing.TB, got, want T, what string, args ...any) {
	tb.Helper()
	if got != want {
		tb.Error(differs(got, want, what, args))
	}
}

// Require is Expect, but ends the test.
func Require[T comparable](tb testing.TB, got, want T, what string, args ...any) {
	tb.Helper()
	if got != want {
		tb.Fatal(differs(got, want, what, args))
	}
}

// Check fails the test, which goes on, unless ok.
func Check(tb testing.TB, ok bool, format string, args ...any) {
	tb.Helper()
	if !ok {
		tb.Errorf(format, args...)
	}
}

// CheckNow is Check, but ends the test.
func CheckNow(tb testing.TB, ok bool, format string, args ...any) {
	tb.Helper()
	if !ok {
		tb.Fatalf(format, args...)
	}
}

// AtMost fails the test, which goes on, if got is above most. What and args are as in Expect. A time that has just
// passed may be longer as in Over.
func AtMost[T cmp.Ordered](tb testing.TB, got, most T, what string, args ...any) {
	tb.Helper()
	took, isTime := any(got).(time.Duration)
	if got > most && (!isTime || took > any(most).(time.Duration)+2*Late(time.Now().Add(-took))) {
		tb.Error(differs(got, fmt.Sprint("at most ", most), what, args))
	}
}

// AtLeast fails the test, which goes on, if got is below least.
func AtLeast[T cmp.Ordered](tb testing.TB, got, least T, what string, args ...any) {
	tb.Helper()
	if got < least {
		tb.Error(differs(got, fmt.Sprint("at least ", least), what, args))
	}
}

// Between is AtLeast and AtMost.
func Between[T cmp.Ordered](tb testing.TB, got, least, most T, what string, args ...any) {
	tb.Helper()
	AtLeast(tb, got, least, what, args...)
	AtMost(tb, got, most, what, args...)
}

// ErrorOf is the error of a call that also returns a value.
func ErrorOf[T any](_ T, err error) error { return err }

func differs(got, want any, what string, args []any) string {
	if strings.Count(what, "%") > len(args) {
		return fmt.Sprintf(what+"; want %v", slices.Concat(args, []any{got, want})...)
	}
	return fmt.Sprintf(what+": got %v, want %v", slices.Concat(args, []any{got, want})...)
}

// NoError fails the test, which goes on, if there is an error.
func NoError(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Error(err)
	}
}

// WantErr fails the test unless err matches each of want, of which Not and Says may make some. If
// there is none, err must be nil.
func WantErr(tb testing.TB, err error, want ...error) {
	tb.Helper()
	if len(want) == 0 && err != nil {
		tb.Fatal(err)
	}
	for _, w := range want {
		switch w := w.(type) {
		case none:
			WantNot(tb, err, w...)
		case said:
			WantText(tb, err, w...)
		default:
			CheckNow(tb, errors.Is(err, w), "error %v does not match %q", err, w)
		}
	}
}

type (
	none []error
	said []string
)

func (none) Error() string { return "none of some errors" }
func (said) Error() string { return "some text" }

// Not has WantErr want that the error matches none of others.
func Not(others ...error) error { return none(others) }

// Says has WantErr want that the error says all of texts.
func Says(texts ...string) error { return said(texts) }

// WantNot fails the test if err matches one of others.
func WantNot(tb testing.TB, err error, others ...error) {
	tb.Helper()
	for _, o := range others {
		if errors.Is(err, o) {
			tb.Fatalf("error %v matches %q", err, o)
		}
	}
}

// WantText fails the test unless err says all of want.
func WantText(tb testing.TB, err error, want ...string) {
	tb.Helper()
	if err == nil {
		tb.Fatal("no error")
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			tb.Fatalf("error %q does not say %q", err, w)
		}
	}
}
