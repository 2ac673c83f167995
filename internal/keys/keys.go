// Package keys turns names that users choose into Redis keys and channels. Distinct names give
// distinct keys, and all keys of one resource are in one Cluster slot, whatever bytes the
// names contain.
package keys

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/leasehold-go/leasehold"
)

// MaxLen bounds a prefix, a family name and a key, in bytes, before escaping.
const MaxLen = 512

// DefaultPrefix starts every key if the user chose no other prefix.
const DefaultPrefix = "leasehold"

// Kind is the part of a Redis key that says which package it belongs to.
type Kind string

// Each kind has three letters: the scripts rely on that to find the prefix of a key.
const (
	Semaphore Kind = "sem"
	Mutex     Kind = "mtx"
	Quorum    Kind = "qmx" // a mutex that several servers decide
	Guard     Kind = "grd"
	Flight    Kind = "flt" // cached values
)

// Family holds what the keys of one handle have in common.
type Family struct {
	Prefix string // as configured; "": DefaultPrefix
	Kind   Kind
	Name   string
	Hash   bool // keys appear only as a hash
	Whole  bool // the family itself is its one resource, and no key names it
}

// Resource is one key of a family, with its Redis keys.
type Resource struct {
	base string // everything up to the part
}

// named returns the family and the key that a Redis key names, escaped. The key is hashed if the
// family says so, and "" for a whole family.
func named(key string) (family, of string) {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}:")
	family, of, _ = strings.Cut(tag, ":")
	return family, of
}

// Key returns the key as Label shows it; "" for a whole family.
func (r Resource) Key() string { _, key := named(r.base); return key }

// Label names the resource in errors and logs: family and key, escaped.
func (r Resource) Label() string { return LabelOf(r.base) }

// LabelOf returns the Label of the resource that a Redis key belongs to.
func LabelOf(key string) string {
	family, of := named(key)
	if of == "" {
		return family
	}
	return family + "/" + of
}

// Resource returns the Resource of key. The error names the bound that an invalid key breaks.
// Resource needs no call to Redis.
func (f Family) Resource(key string) (Resource, error) {
	switch {
	case f.Whole:
		return f.resource(":", ""), nil
	case key == "":
		return Resource{}, Invalid("key is empty; want 1 to %d bytes", MaxLen)
	case len(key) > MaxLen:
		return Resource{}, Invalid("key has %d bytes; want 1 to %d", len(key), MaxLen)
	}
	return f.resource(":", Escape(Shown(key, f.Hash))), nil
}

func (f Family) resource(separator, key string) Resource {
	return Resource{f.prefix() + ":" + string(f.Kind) + ":{" + Escape(f.Name) + separator + key + "}:"}
}

// Shown returns the form of a key in Redis and in listings, before escaping: the key itself,
// or its hash in a family with HashKeys.
func Shown(key string, hash bool) string {
	if !hash {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

// Together returns one resource for the whole family, which all its keys share. Families with
// a total use it.
func (f Family) Together() Resource {
	return f.resource("", "")
}

// Part returns the Redis key of one part of the resource: "holders", "queue" and so on.
func (r Resource) Part(part string) string { return r.base + part }

// Parts returns several of these keys as words of a call. They share one piece of memory.
func (r Resource) Parts(parts ...string) []any {
	var b strings.Builder
	b.Grow(len(parts) * (len(r.base) + len("holders")))
	for _, part := range parts {
		b.WriteString(r.base)
		b.WriteString(part)
	}
	all, text := make([]any, len(parts)), b.String()
	for i, part := range parts {
		n := len(r.base) + len(part)
		all[i], text = text[:n], text[n:]
	}
	return all
}

// Beside returns the Redis key of another part of the resource that has this Redis key.
func Beside(key, part string) string { return key[:strings.LastIndexByte(key, ':')+1] + part }

// Inbox returns the channel on which the handle with this id is told of its grants.
func (f Family) Inbox(handle string) string { return f.prefix() + ":inbox:" + handle }

// InSlot follows the random characters in the id of a handle that listens on a channel in each
// key's slot, as on a Cluster, instead of its one inbox. The scripts find it in the members of
// the handle, and so know where to publish.
const InSlot = "@"

// Keeps comes after the random characters and InSlot in the id of a handle that may keep leases
// which nobody uses.
const Keeps = "^"

// InboxAt returns the channel in the slot of a Redis key on which a handle that listens there
// is told of its grants.
func InboxAt(key, handle string) string {
	return key[:strings.Index(key, "}:")+2] + "inbox:" + handle
}

func (f Family) prefix() string {
	if f.Prefix == "" {
		return DefaultPrefix
	}
	return f.Prefix
}

// Check returns the errors in the family's own names, at most one per field.
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
	// A prefix is not escaped, so that "team:app" stays what operators expect. A brace in it
	// would become part of the hash tag.
	if i := strings.IndexFunc(f.Prefix, func(r rune) bool { return r == '{' || r == '}' || r < 0x20 || r == 0x7f }); i >= 0 {
		errs = append(errs, Bad("Prefix", "is %q, with %q; want no braces and no control bytes", f.Prefix, f.Prefix[i]))
	}
	return errs
}

// Bad returns the error for a field of a Config: its name, and what is wrong with it.
func Bad(field, what string, args ...any) error {
	return Invalid("%s %s", field, fmt.Sprintf(what, args...))
}

// Unless returns the error of Bad, and nil if the field is ok.
func Unless(ok bool, field, what string, args ...any) error {
	if ok {
		return nil
	}
	return Bad(field, what, args...)
}

// Invalid returns the error for an argument that can never be valid. It matches
// leasehold.ErrInvalid. Its text names the argument, its value and its bound.
func Invalid(text string, args ...any) error {
	return &invalidError{fmt.Sprintf(text, args...)}
}

type invalidError struct{ text string }

func (e *invalidError) Error() string        { return e.text }
func (e *invalidError) Is(target error) bool { return target == leasehold.ErrInvalid }

// Escape makes text safe between the braces of a hash tag: braces, ':', '%' and control bytes
// become %XX. It is injective, so that two names never become the same.
func Escape(text string) string { return escapeIf(text, special) }

// escapeIf writes the bytes for which special returns true as %XX.
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

// Unescape is the inverse of Escape. It reports whether text is well-formed: each '%' must
// have two hexadecimal digits behind it. It accepts other escaped bytes, too.
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

const (
	// MaxLabel bounds a label, in bytes, before escaping. With a short label a member has at
	// most 64 bytes, up to which Redis keeps a small set compact.
	MaxLabel = 64
	// maxDefaultLabel is how many bytes are kept of the end of host:pid.
	maxDefaultLabel = 20
	// NoLabel is the label that switches labels off.
	NoLabel = "-"
)

// defaultLabel returns the end of the host name and the process number.
var defaultLabel = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return lastBytes(host+":"+strconv.Itoa(os.Getpid()), maxDefaultLabel)
})

// lastBytes returns the last n bytes of text, or all of it.
func lastBytes(text string, n int) string { return text[max(0, len(text)-n):] }

// LabelSuffix returns the end of a handle's id for a label: '~' and the escaped label. So
// every listing can show the label without a Redis key for it.
func LabelSuffix(label string) (string, error) {
	switch {
	case label == NoLabel:
		return "", nil
	case label == "":
		label = defaultLabel()
	case len(label) > MaxLabel:
		return "", Bad("Label", "has %d bytes; want at most %d", len(label), MaxLabel)
	}
	return "~" + escapeIf(label, specialInLabel), nil
}

// specialInLabel reports whether a byte of a label is escaped: those that separate the words
// of a member, and those that separate members in a reply or a message.
func specialInLabel(c byte) bool {
	return c <= ' ' || c == 0x7f || strings.IndexByte(".%+~{}", c) >= 0
}
