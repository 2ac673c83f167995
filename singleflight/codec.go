package singleflight

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/envelope"
)

// encode turns a value into bytes. []byte and string are taken as they are, unless there is a
// Codec: it must see them, because it may encrypt.
func (g *Group[T]) encode(v T) (data string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the codec panicked: %v", p)
		}
	}()
	if g.cfg.Codec == nil {
		switch raw := any(v).(type) {
		case []byte:
			return string(raw), nil
		case string:
			return raw, nil
		}
		b, err := codec.Msgpack{}.Marshal(&v) // a pointer, so that methods of *T are found
		return string(b), err
	}
	b, err := g.cfg.Codec.Marshal(v)
	return string(b), err
}

// decode makes a new value from its bytes, so that no two callers share one.
func (g *Group[T]) decode(data string) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the codec panicked: %v", p)
		}
	}()
	if g.cfg.Codec == nil {
		switch p := any(&v).(type) {
		case *[]byte:
			*p = []byte(data)
			return v, nil
		case *string:
			*p = data
			return v, nil
		}
		err = codec.Msgpack{}.UnmarshalString(data, &v)
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

// failurePayload returns a loader's failure as it is passed to other processes: its text, and
// the texts of the sentinels that it matches.
func (g *Group[T]) failurePayload(err error) string {
	payload := errorText(err.Error())
	for _, sentinel := range g.cfg.Errors {
		if errors.Is(err, sentinel) {
			payload += separator + sentinel.Error()
		}
	}
	return payload
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
		for _, sentinel := range g.cfg.Errors {
			if slices.Contains(names, sentinel.Error()) {
				remote.sentinels = append(remote.sentinels, sentinel)
			}
		}
	}
	return remote
}
