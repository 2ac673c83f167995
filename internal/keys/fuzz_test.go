package keys_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// Of all that names a resource (prefix, kind, name, key, or none where the family
// is the resource) no two differ and meet in one key of Redis, hashed or not.
func FuzzFamilies(f *testing.F) {
	f.Add("", byte(0), "n", "k", "leasehold", byte(0), "n", "k", false)
	f.Add("", byte(0), "n", "k", "", byte(1), "n", "k", false)
	f.Add("a:sem", byte(0), "n", "k", "a", byte(0), "n", "k", false)
	f.Add("a", byte(4), "n", "", "a", byte(0), "n", ":", false)
	f.Add("a", byte(4), "n", "", "a", byte(0), "n", "}", false)
	f.Add("a", byte(3), "n:", "k", "a", byte(3), "n", ":k", true)
	f.Add("a:inbox:", byte(2), "{}", "%", "a:inbox", byte(2), "%7B%7D", "%25", false)
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
		for _, part := range []string{"holders", "queue", "value", "seen"} {
			if meet := r1.Part(part) == r2.Part(part); meet != same {
				t.Fatalf("%+v %q and %+v %q: the same %v, meet in %q: %v", f1, key1, f2, key2, same, r1.Part(part), meet)
			}
			if slot(r1.Part(part)) != slot(r1.Part("holders")) {
				t.Fatalf("%q is in another slot", r1.Part(part))
			}
		}
	})
}
