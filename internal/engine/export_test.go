package engine

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/luascripts"
)

// Member is the owner id as the scripts know it.
func (r *Request) Member() string { return r.member }

// Constant is a duration that the scripts set, in ms there.
func Constant(t *testing.T, name string) time.Duration {
	t.Helper()
	return time.Duration(Number(t, name)) * time.Millisecond
}

// Number is a number that the scripts set.
func Number(t *testing.T, name string) int64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *local ` + name + ` = (\d+)`).FindStringSubmatch(luascripts.PermitsLeave())
	if m == nil {
		t.Fatalf("the scripts set no %s", name)
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// What lanes go by.
const (
	Width = width
	Stuck = stuck
)
