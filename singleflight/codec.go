package singleflight

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/keys"
)

// isRaw reports whether values of T are stored as they are if there is no Codec.
func isRaw[T any]() bool {
	t := reflect.TypeFor[T]()
	return t == reflect.TypeFor[[]byte]() || t == reflect.TypeFor[string]()
}

// schemaOf returns the fingerprint of T as own, or else msgpack, sees it. It is 0 if values are
// stored as they are. It may differ although two versions of T can read each other's values:
// that costs one load per version.
func schemaOf[T any](own Codec) uint32 {
	text := ""
	switch {
	case own != nil:
		text = fmt.Sprintf("%T ", own)
	case isRaw[T]():
		return 0
	}
	sum := sha256.Sum256([]byte(text + codec.Fingerprint(reflect.TypeFor[T](), own != nil)))
	return max(1, binary.BigEndian.Uint32(sum[:]))
}

// encode turns a value into bytes. []byte and string are taken as they are, unless there is a
// Codec: it must see them, because it may encrypt.
func (g *Group[T]) encode(c *callersCode, v T) (data string, err error) {
	c.runs = "the codec"
	defer func() {
		if p := recover(); p != nil {
			err = errors.New(errorText(c.runs + " panicked: " + panicText(p)))
		}
	}()
	if g.cfg.Codec != nil {
		var b []byte
		b, err = g.cfg.Codec.Marshal(v)
		data = string(b)
	} else {
		switch p := any(&v).(type) { // T says what to decode, and not what an interface holds
		case *[]byte:
			return string(*p), nil
		case *string:
			return *p, nil
		}
		data, err = codec.Marshal(&v) // a pointer, so that methods of *T are found
	}
	if err != nil {
		return "", c.fix("the codec's error", err)
	}
	return data, nil
}

// decode makes a new value from its bytes, so that no two callers share one. If callers' code
// takes part, decode ends with ctx, too.
func (g *Group[T]) decode(ctx context.Context, data string) (T, error) {
	if !g.ownCode {
		return g.unmarshal(data)
	}
	var none, v T
	var err error
	ended, left := contain(ctx, nil, func(c *callersCode) {
		c.runs = "the codec"
		v, err = g.unmarshal(data)
	})
	if left != nil {
		return none, left
	}
	return v, cmp.Or(ended, err)
}

// unmarshal is decode on this goroutine.
func (g *Group[T]) unmarshal(data string) (v T, err error) {
	if g.cfg.Codec == nil {
		switch p := any(&v).(type) {
		case *[]byte:
			*p = []byte(data)
			return v, nil
		case *string:
			*p = data
			return v, nil
		}
		err = codec.Unmarshal(data, &v)
		return v, err
	}
	err = g.cfg.Codec.Unmarshal([]byte(data), &v)
	return v, err
}

// errorText returns the text of a loader's error as it is passed to other processes: valid
// UTF-8, without separators, and at most maxText bytes.
func errorText(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), 2*maxText)], "\uFFFD")
	text = strings.ReplaceAll(text, separator, "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	end := maxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

type sentinel struct {
	err  error
	text string
}

// readSentinels returns sentinels with their texts, and what is wrong with them.
func readSentinels(errs []error) (all []sentinel, problems []error) {
	if len(errs) > maxSentinels {
		return nil, []error{keys.Bad("Errors", "has %d; want at most %d", len(errs), maxSentinels)}
	}
	bad := func(i int, what string, args ...any) {
		problems = append(problems, keys.Bad("Errors", fmt.Sprintf("[%d] ", i)+what, args...))
	}
	texts := map[string]bool{}
	for i, err := range errs {
		if err == nil {
			bad(i, "is nil; want an error")
			continue
		}
		var text string
		panicked, _ := contain(context.Background(), nil, func(c *callersCode) {
			c.runs = "the method Error"
			text = err.Error()
		})
		switch {
		case panicked != nil:
			bad(i, "has no text: %v", panicked)
		case !reflect.ValueOf(err).Comparable():
			bad(i, "is a %T, which cannot be compared; want an error that errors.Is finds", err)
		case text == "" || len(text) > maxSentinelText || strings.Contains(text, separator):
			bad(i, "has a text of %d bytes; want 1 to %d without NUL", len(text), maxSentinelText)
		case texts[text]:
			bad(i, "has the text %q of another one; want different texts", text)
		default:
			texts[text] = true
			all = append(all, sentinel{err, text})
		}
	}
	return all, problems
}

// asError returns the error that an envelope without a value stands for.
func (g *Group[T]) asError(e envelope.Envelope) error {
	if e.Kind == envelope.NotFound {
		return ErrNotFound
	}
	text, matched, _ := strings.Cut(e.Payload, separator)
	remote := &RemoteError{Text: text, kind: e.Kind}
	if matched != "" {
		names := strings.Split(matched, separator)
		for _, s := range g.sentinels {
			if slices.Contains(names, s.text) {
				remote.sentinels = append(remote.sentinels, s.err)
			}
		}
	}
	return remote
}
