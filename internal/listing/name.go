package listing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// Resource is one key of a family, or a family that is one resource. It is read from the names
// of its keys in Redis.
type Resource struct {
	Kind keys.Kind
	// Family and Key are the names that the user chose. A hashed key is shown as its hash.
	Family, Key string
	// Whole says that the resource has no key: it is the permits of a family's loads.
	Whole bool
	// HasTotal says that the family has a total. All its tenants are then in one resource. Key
	// is "" for the family, or names a tenant.
	HasTotal bool

	// Schema is the version of a cached value; "" is schema 0.
	Schema string

	base string // the beginning of its keys in Redis, up to the part
}

func (r Resource) Part(part string) string {
	if r.Schema != "" {
		part += "." + r.Schema
	}
	return r.base + part
}

// one returns the resource without the tenant, because all tenants have the same keys.
func (r Resource) one() Resource {
	if r.HasTotal {
		r.Key = ""
	}
	return r
}

// Of returns a resource, which need not exist. With total, key is that of a tenant, or "" for
// the family.
func Of(prefix string, kind keys.Kind, family, key string, total bool) Resource {
	r := Resource{Kind: kind, Family: family, Key: key, HasTotal: total}
	tag := keys.Escape(family)
	if !total {
		r.Whole = key == ""
		tag += ":" + keys.Escape(key)
	}
	r.base = cmp.Or(prefix, keys.DefaultPrefix) + ":" + string(kind) + ":{" + tag + "}:"
	return r
}

// parse reads the name of a key in Redis. It returns the resource that the key belongs to, and
// the part of the resource that it is. It accepts only names that this project makes.
func parse(prefix, name string) (r Resource, part string, ok bool) {
	rest, ok := strings.CutPrefix(name, prefix+":")
	if !ok || len(rest) < len("sem:{}:") || rest[3:5] != ":{" {
		return Resource{}, "", false
	}
	r.Kind = keys.Kind(rest[:3])
	tag, part, ok := strings.Cut(rest[5:], "}:")
	if ok && r.Kind == keys.Flight {
		if named, schema, suffixed := strings.Cut(part, "."); suffixed {
			if len(schema) != 8 || strings.Trim(schema, "0123456789abcdef") != "" {
				return Resource{}, "", false
			}
			part, r.Schema = named, schema
		}
	}
	known := slices.Contains([]keys.Kind{keys.Semaphore, keys.Mutex, keys.Quorum, keys.Flight, keys.Guard}, r.Kind)
	if !known || !ok || part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz") != "" {
		return Resource{}, "", false
	}
	family, key, keyed := strings.Cut(tag, ":")
	switch {
	case !keyed && r.Kind != keys.Semaphore:
		return Resource{}, "", false
	case !keyed:
		r.HasTotal = true
	case key == "":
		r.Whole = true
	}
	if r.Family, ok = keys.Unescape(family); !ok || family == "" || keys.Escape(r.Family) != family {
		return Resource{}, "", false
	}
	if r.Key, ok = keys.Unescape(key); !ok || keys.Escape(r.Key) != key {
		return Resource{}, "", false
	}
	r.base = name[:strings.LastIndex(name, "}:")+len("}:")]
	return r, part, true
}

func pattern(prefix string) string { return escapePattern(prefix) + ":???:{*" }

func escapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(text)
}
