package near

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"time"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/inbox"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/loads"
)

// A Line is how a handle is reached by others: its name among the readers of a key, and its
// inbox. It has a subscription only while a copy is held or an invalidation waits.
type Line struct {
	client *call.Client
	handle string // 128 random bits, then keys.InSlot on a Cluster, then the label
	inbox  interface {
		Watch(key string) (since time.Time)
		Unwatch(key string)
		Close()
	}
	cache  *Cache // nil: the handle keeps no copies
	Writer *Writer
}

// NewLine makes the line of a handle of the family. It sends nothing. suffix is the label's
// part of the handle's name (keys.LabelSuffix).
func NewLine(client *call.Client, family keys.Family, suffix string) *Line {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	l := &Line{client: client, handle: base64.RawURLEncoding.EncodeToString(id)}
	l.Writer = newWriter(l)
	if client.IsCluster() {
		l.handle += keys.InSlot + suffix
		channelOf := func(key string) string { return keys.InboxAt(key, l.handle) }
		l.inbox = inbox.NewSharded(client, channelOf, l.message, l.subscribed)
		return l
	}
	l.handle += suffix
	subscribe := func(ctx context.Context) call.PubSub { return client.Subscribe(ctx, family.Inbox(l.handle)) }
	l.inbox = inbox.New(subscribe, l.message, func() { l.subscribed("") })
	return l
}

// watched returns the name under which a key is watched. On a single server one channel serves
// all keys.
func (l *Line) watched(near string) string {
	if l.client.IsCluster() {
		return near
	}
	return ""
}

// message handles a message on the goroutine of the inbox.
func (l *Line) message(text string) {
	if d, ok := loads.ParseDrop(text); ok {
		if l.cache != nil {
			l.cache.onDrop(d)
		}
		return
	}
	loads.ParseAck(text, l.Writer.acknowledged)
}

// subscribed is told that messages are heard from now on, and that earlier ones may have been
// missed. watched is "" if it concerns all keys.
func (l *Line) subscribed(watched string) {
	if l.cache != nil {
		l.cache.onSubscribed(watched)
	}
	l.Writer.onSubscribed(watched)
}

// Close ends the subscriptions. If ctx ends before, Close returns false, and the rest goes on in the background: a
// server that hangs may hold up one that is being made for as long as the client waits for an answer.
func (l *Line) Close(ctx context.Context) (all bool) {
	done := make(chan struct{})
	go func() { l.inbox.Close(); close(done) }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
