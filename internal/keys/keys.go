// Package keys turns the names that users choose into the keys and channels of
// Redis: distinct names give distinct keys, and all keys of one resource lie in
// one Cluster slot, whatever bytes the names contain.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold"
)

// MaxLen bounds a prefix, a family name and a key, in bytes, as the user wrote
// them.
const MaxLen = 512

// DefaultPrefix starts every key where the user chose no other prefix.
const DefaultPrefix = "leasehold"

// Kind is the part of a key that says which package it belongs to.
type Kind string

// The kinds are three letters each: the scripts find the prefix of a key by
// that.
const (
	Semaphore Kind = "sem"
	Mutex     Kind = "mtx"
	Guard     Kind = "grd"
	Flight    Kind = "flt" // cached values
)

// Family is what the keys of one handle have in common.
type Family struct {
	Prefix string // as configured; "" is DefaultPrefix
	Kind   Kind
	Name   string
	Hash   bool // keys appear only as a hash
	Whole  bool // it has one resource, which no key names: the family itself
}

// Resource is one key of a family, and the keys of Redis that belong to it.
type Resource struct {
	// Label names the resource in errors and logs: family and key, escaped,
	// the key hashed where the family says so.
	Label string
	base  string // everything up to the part
}

// Resource makes the Redis keys of key. The error names the bound that a bad
// key breaks; nothing needs to have been sent by then.
func (f Family) Resource(key string) (Resource, error) {
	switch {
	case f.Whole:
		name := Escape(f.Name)
		return Resource{Label: name, base: f.prefix() + ":" + string(f.Kind) + ":{" + name + ":}:"}, nil
	case key == "":
		return Resource{}, Invalid("key is empty; want 1 to %d bytes", MaxLen)
	case len(key) > MaxLen:
		return Resource{}, Invalid("key has %d bytes; want 1 to %d", len(key), MaxLen)
	}
	key = Escape(Shown(key, f.Hash))
	name := Escape(f.Name)
	return Resource{
		Label: name + "/" + key,
		base:  f.prefix() + ":" + string(f.Kind) + ":{" + name + ":" + key + "}:",
	}, nil
}

// Shown is how a key appears in Redis and in listings, before it is escaped: as it
// is, or, of a family with HashKeys, as its hash.
func Shown(key string, hash bool) string {
	if !hash {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// Together names the family as one resource, which all its keys share: that of a family
// with a total.
func (f Family) Together() Resource {
	name := Escape(f.Name)
	return Resource{Label: name, base: f.prefix() + ":" + string(f.Kind) + ":{" + name + "}:"}
}

// Part is the Redis key of one part of the resource: "holders", "queue" and so
// on.
func (r Resource) Part(part string) string { return r.base + part }

// Beside is another part of the resource that has this Redis key.
func Beside(key, part string) string { return key[:strings.LastIndexByte(key, ':')+1] + part }

// Inbox is the channel on which the handle with this id is told of its grants.
func (f Family) Inbox(handle string) string { return f.prefix() + ":inbox:" + handle }

// InSlot follows the random characters of a handle's id where the handle listens on a
// channel in each key's slot, as on a Cluster, rather than on its one inbox. The
// scripts see it in the members of the handle, and know where to publish.
const InSlot = "@"

// InboxAt is the channel in the slot of a key of Redis on which a handle that listens
// there is told of its grants.
func InboxAt(key, handle string) string {
	return key[:strings.Index(key, "}:")+2] + "inbox:" + handle
}

func (f Family) prefix() string {
	if f.Prefix == "" {
		return DefaultPrefix
	}
	return f.Prefix
}

// Check returns what is wrong with the family's own names, one error a field.
func (f Family) Check() []error {
	var errs []error
	switch {
	case f.Name == "":
		errs = append(errs, Bad("Name", "is empty; want 1 to %d bytes", MaxLen))
	case len(f.Name) > MaxLen:
		errs = append(errs, Bad("Name", "has %d bytes; want 1 to %d", len(f.Name), MaxLen))
	}
	if len(f.Prefix) > MaxLen {
		errs = append(errs, Bad("Prefix", "has %d bytes; want at most %d", len(f.Prefix), MaxLen))
	}
	// A prefix is not escaped, so that "team:app" stays what operators expect;
	// a brace in it would end up as the hash tag.
	if i := strings.IndexFunc(f.Prefix, func(r rune) bool { return r == '{' || r == '}' || r < 0x20 || r == 0x7f }); i >= 0 {
		errs = append(errs, Bad("Prefix", "is %q, with %q; want no braces and no control bytes", f.Prefix, f.Prefix[i]))
	}
	return errs
}

// Bad is the error of a field of a Config: its name, and what is wrong with it.
func Bad(field, what string, args ...any) error {
	return Invalid("%s %s", field, fmt.Sprintf(what, args...))
}

// Invalid is the error of an argument that can never be served. It matches
// leasehold.ErrInvalid. Its text names the argument, its value and its bound.
func Invalid(text string, args ...any) error {
	return &invalidError{fmt.Sprintf(text, args...)}
}

type invalidError struct{ text string }

func (e *invalidError) Error() string        { return e.text }
func (e *invalidError) Is(target error) bool { return target == leasehold.ErrInvalid }

// Escape makes text safe between the braces of a hash tag: braces, ':', '%',
// and control bytes become %XX. It is injective, so that no two names meet.
func Escape(text string) string { return escapeIf(text, special) }

// escapeIf writes the bytes that special names as %XX.
func escapeIf(text string, special func(c byte) bool) string {
	n := 0
	for i := range len(text) {
		if special(text[i]) {
			n++
		}
	}
	if n == 0 {
		return text
	}
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(text) + 2*n)
	for i := range len(text) {
		c := text[i]
		if !special(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

// Unescape is the inverse of Escape, and reports whether text is well-formed: each
// '%' has two hexadecimal digits behind it. It accepts other bytes escaped, too.
func Unescape(text string) (string, bool) {
	if !strings.Contains(text, "%") {
		return text, true
	}
	var b strings.Builder
	b.Grow(len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", false
		}
		c, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), true
}

func special(c byte) bool {
	return c == '{' || c == '}' || c == ':' || c == '%' || c < 0x20 || c == 0x7f
}
