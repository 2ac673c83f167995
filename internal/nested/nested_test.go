package nested

import (
	"context"
	"testing"
	"time"
)

type panics struct{}

func (panics) Deadline() (time.Time, bool) { panic("Deadline") }
func (panics) Done() <-chan struct{}       { panic("Done") }
func (panics) Err() error                  { panic("Err") }
func (panics) Value(any) any               { panic("Value") }

// No method of a Calm panics, and Err says that such a ctx has ended.
func TestCalm(t *testing.T) {
	c := Calm{panics{}}
	if at, ok := c.Deadline(); ok || c.Done() != nil || c.Value(1) != nil || c.Err() != context.Canceled {
		t.Errorf("Deadline %v, Done %v, Value %v, Err %v", at, c.Done(), c.Value(1), c.Err())
	}
}
