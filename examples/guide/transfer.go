package guide

import (
	"context"

	"github.com/leasehold-go/leasehold/multi"
	"github.com/leasehold-go/leasehold/mutex"
)

// move writes both accounts, and passes the tokens of their locks along.
func transfer(ctx context.Context, accounts *mutex.Mutex, from, to string, move func(ctx context.Context, from, to uint64) error) error {
	return multi.Do(ctx, func(ctx context.Context, l *multi.Lease) error {
		return move(ctx, l.Token(accounts, from), l.Token(accounts, to))
	}, multi.Lock(accounts, from), multi.Lock(accounts, to))
}
