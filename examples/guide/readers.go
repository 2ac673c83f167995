package guide

import (
	"context"

	"github.com/leasehold-go/leasehold/semaphore"
)

const readers = 100 // the most that read at once: the Limit of caps

// Read runs fn beside other readers of a document.
func Read(ctx context.Context, caps *semaphore.Semaphore, doc string, fn func(context.Context) error) error {
	return caps.Do(ctx, doc, fn)
}

// Write runs fn while nobody else reads or writes the document.
func Write(ctx context.Context, caps *semaphore.Semaphore, doc string, fn func(context.Context) error) error {
	return caps.DoN(ctx, doc, readers, fn)
}
