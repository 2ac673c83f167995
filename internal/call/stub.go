package call

import (
	"context"
	"errors"
)

var ErrNotSent = errors.New("the call was not sent")

func (c *Call) Withdraw() bool { return false }

type Seat struct{}

func NewBatch(n int) []*Seat {
	s := make([]*Seat, n)
	for i := range s {
		s[i] = &Seat{}
	}
	return s
}
func (s *Seat) Do(ctx context.Context, c *Client, one *Call) ([]int64, error) { return c.Do(ctx, one) }
func (s *Seat) Leave()                                                        {}
