package call

import "context"

// NeedCtx panics if ctx is nil. Each public method that takes a ctx calls it first, so that the
// mistake is told at the call, and not somewhere below it.
func NeedCtx(ctx context.Context) {
	if ctx == nil {
		panic("leasehold: nil ctx: pass context.Background() or the ctx of the caller")
	}
}
