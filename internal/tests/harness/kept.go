package harness

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
)

// keepFor is the KeepFor with which LEASEHOLD_KEEP_FOR makes the tests run; 0: as their Configs say.
var keepFor = func() time.Duration {
	text := os.Getenv("LEASEHOLD_KEEP_FOR")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic("LEASEHOLD_KEEP_FOR: " + err.Error())
	}
	return d
}()

// KeepFor is what a Config without a KeepFor, and with this TTL, gets for it.
func KeepFor(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return keepFor
	}
	return min(keepFor, ttl/2)
}

// Take is a try for what is free. While LEASEHOLD_KEEP_FOR is set it is repeated for the second in
// which a recall may be lost.
func Take[T any](try func() (T, error)) (T, error) {
	began := time.Now()
	for {
		v, err := try()
		if keepFor == 0 || !errors.Is(err, leasehold.ErrBusy) || time.Since(began) > time.Second {
			return v, err
		}
	}
}

// StrictOnly skips a test that reasons names, by the name of its function, while LEASEHOLD_KEEP_FOR
// is set: what it shows differs by contract then.
func StrictOnly(tb testing.TB, reasons map[string]string) {
	name, _, _ := strings.Cut(tb.Name(), "/")
	if why, differs := reasons[name]; differs && keepFor > 0 {
		tb.Skip("with KeepFor: " + why)
	}
}
