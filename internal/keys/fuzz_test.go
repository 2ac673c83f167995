package keys_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// Of all that names a resource (prefix, kind, name, key, or none where the family is the resource) no two
// differ and meet in one key of Redis, hashed or not. What belongs to one resource lies in one slot, and
// its keys are of the documented form.
func FuzzFamilies(f *testing.F) {
	f.Add("", byte(0), "n", "k", "leasehold", byte(0), "n", "k", false)
	f.Add("", byte(0), "n", "k", "", byte(1), "n", "k", false)
	f.Add("a:sem", byte(0), "n", "k", "a", byte(0), "n", "k", false)
	f.Add("a", byte(4), "n", "", "a", byte(0), "n", ":", false)
	f.Add("a", byte(4), "n", "", "a", byte(0), "n", "}", false)
	f.Add("a", byte(3), "n:", "k", "a", byte(3), "n", ":k", true)
	f.Add("a:inbox:", byte(2), "{}", "%", "a:inbox", byte(2), "%7B%7D", "%25", false)
	for _, s := range [][4]string{
		{"a:b", "c", "a", "b:c"},
		{"a", "{b}", "a", "%7Bb%7D"},
		{"a}", "b", "a", "}b"},
		{"%3A", "x", ":", "x"},
		{"a", "b/c", "a/b", "c"},
		{"\x00", "\x7f", "%00", "%7F"},
		{"é", "\xff\xfe", "e", "%FF"},
		{strings.Repeat("{", 512), strings.Repeat("%", 512), "n", "k"},
		{"n", "k}:holders", "n", "k"},
	} {
		for kind := range byte(3) {
			f.Add("", kind, s[0], s[1], "", kind, s[2], s[3], false)
		}
	}
	kinds := []keys.Kind{keys.Semaphore, keys.Mutex, keys.Guard, keys.Flight}
	f.Fuzz(func(t *testing.T, prefix1 string, kind1 byte, name1, key1, prefix2 string, kind2 byte, name2, key2 string, hash bool) {
		family := func(prefix, name string, kind byte) keys.Family {
			// A family of one resource of its own is a semaphore's.
			whole := int(kind)%(len(kinds)+1) == len(kinds)
			return keys.Family{Prefix: prefix, Kind: kinds[int(kind)%(len(kinds)+1)%len(kinds)], Name: name, Hash: hash, Whole: whole}
		}
		f1, f2 := family(prefix1, name1, kind1), family(prefix2, name2, kind2)
		r1, err1 := f1.Resource(key1)
		r2, err2 := f2.Resource(key2)
		redistest.Require(t, err1 != nil, !f1.Whole && (key1 == "" || len(key1) > keys.MaxLen), "a key of %d bytes: %v", len(key1), err1)
		if err1 != nil || err2 != nil || len(f1.Check())+len(f2.Check()) > 0 {
			return
		}
		for _, f := range []*keys.Family{&f1, &f2} {
			if f.Prefix == "" {
				f.Prefix = keys.DefaultPrefix
			}
		}
		if f1.Whole {
			key1 = ""
		}
		if f2.Whole {
			key2 = ""
		}
		same := f1 == f2 && key1 == key2
		all, begins := map[string]bool{}, f1.Prefix+":"+string(f1.Kind)+":{"
		redistest.CheckNow(t, strings.IndexByte(begins, '{') == len(begins)-1, "%q has another brace: what follows is no hash tag", begins)
		_, wantTag, _ := strings.Cut(r1.Part("holders"), begins)
		wantTag = strings.TrimSuffix(wantTag, "}:holders")
		for _, part := range parts {
			p := r1.Part(part)
			all[p] = true
			tag := strings.TrimSuffix(strings.TrimPrefix(p, begins), "}:"+part)
			redistest.CheckNow(t, tag == wantTag && p == begins+tag+"}:"+part && !strings.ContainsAny(tag, "{}"), "key %q", p)
			redistest.CheckNow(t, len(tag) <= 3*(len(name1)+len(key1))+64, "the tag of %d bytes has %d", len(name1)+len(key1), len(tag))
			redistest.CheckNow(t, !strings.ContainsFunc(tag, func(c rune) bool { return c < 0x20 || c == 0x7f }), "control byte in %q", p)
		}
		for _, part := range parts {
			redistest.CheckNow(t, all[r2.Part(part)] == same, "%+v %q and %+v %q: the same %v, meet in %q or not", f1, key1, f2, key2, same, r2.Part(part))
		}
	})
}

// parts are those of resources of all kinds.
var parts = []string{"holders", "queue", "alive", "fence", "limit", "value", "seen"}
