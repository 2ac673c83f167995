package listing

import (
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func TestNamesOfKeysAreReadBack(t *testing.T) {
	hostile := "a:b{c}%d\x00\x1b[31m\xff é"
	for _, prefix := range []string{"leasehold", "team:app", "", "a*[b]?"} {
		for _, kind := range []keys.Kind{keys.Semaphore, keys.Mutex, keys.Flight, keys.Guard} {
			for _, name := range []string{"n", hostile} {
				f := keys.Family{Prefix: prefix, Kind: kind, Name: name}
				of := redistest.Must(f.Resource(hostile))(t)
				shown := prefix
				if shown == "" {
					shown = keys.DefaultPrefix
				}
				r, part, ok := parse(shown, of.Part("holders"))
				redistest.CheckNow(t, ok && r.Kind == kind && r.Family == name && r.Key == hostile && !r.Whole && !r.HasTotal &&
					part == "holders",
					"%q is read as %+v, %q, %v", of.Part("holders"), r, part, ok)
				got := r.Part("queue")
				redistest.CheckNow(t, got == of.Part("queue") && Of(prefix, kind, name, hostile, false).Part("queue") == got,
					"its queue is %q, want %q", got, of.Part("queue"))
			}
		}
	}
	whole, _ := keys.Family{Kind: keys.Flight, Name: "n", Whole: true}.Resource("")
	r, _, ok := parse("leasehold", whole.Part("holders"))
	redistest.CheckNow(t, ok && r.Whole && r.Family == "n", "%q is read as %+v", whole.Part("holders"), r)
	r, part, ok := parse("leasehold", "leasehold:sem:{n}:places")
	redistest.CheckNow(t, ok && r.HasTotal && r.Family == "n" && part == "places", "a family with a total is read as %+v, %q, %v", r, part, ok)
}

func TestNamesOfOthersAreLeftOut(t *testing.T) {
	for _, name := range []string{
		"", "leasehold", "leasehold:sem", "leasehold:sem:{n:k}", "leasehold:sem:{n:k}:", "leasehold:sem:{n:k:holders",
		"leasehold:abc:{n:k}:holders", "leasehold:mtx:{n}:holders", "leasehold:sem:{:k}:holders", "leasehold:sem:n:k:holders",
		"leasehold:sem:{n:%zz}:holders", "leasehold:sem:{n:%4}:holders", "leasehold:sem:{n:a:b}:holders", "leasehold:sem:{%6e:k}:holders",
		"leasehold:sem:{n:k}:Holders", "leasehold:sem:{n:k}:a:b", "other:sem:{n:k}:holders", "leasehold:inbox:abc",
	} {
		r, part, ok := parse("leasehold", name)
		redistest.Check(t, !ok, "%q is read as %+v, %q", name, r, part)
	}
}

func TestMembersAreRead(t *testing.T) {
	const handle = "AbCdEfGh_-0123456789xy"
	for text, want := range map[string]member{
		handle + ".7.1.30000.5":                         {id: "AbCdEfGh-7", permits: 1, ttl: 30 * time.Second, limit: 5},
		handle + ".7.3.30000.5+2":                       {id: "AbCdEfGh-7", permits: 3, ttl: 30 * time.Second, limit: 5},
		handle + "@.7.1.30000.5":                        {id: "AbCdEfGh-7", permits: 1, ttl: 30 * time.Second, limit: 5},
		handle + "@~web-1:4711.7.1.100.1":               {id: "AbCdEfGh-7", label: "web-1:4711", permits: 1, ttl: 100 * time.Millisecond, limit: 1},
		handle + "~web-1:4711.7.1.100.1":                {id: "AbCdEfGh-7", label: "web-1:4711", permits: 1, ttl: 100 * time.Millisecond, limit: 1},
		handle + "~a%2Eb%25c%2Bd%7Ee%7Bf%20g.1.1.100.1": {id: "AbCdEfGh-1", label: "a.b%c+d~e{f g", permits: 1, ttl: 100 * time.Millisecond, limit: 1},
		handle + "~bad%zz.1.1.100.1":                    {id: "AbCdEfGh-1", label: "bad%zz", permits: 1, ttl: 100 * time.Millisecond, limit: 1},
	} {
		got, ok := parseMember(text, false)
		want.first, _, _ = strings.Cut(text, "+")
		redistest.Check(t, ok && got == want, "%q is read as %+v, %v; want %+v", text, got, ok, want)
	}
	first := "ten.a%3Ant+x:" + handle + "~h:1.7.2.1000.5.3.40"
	got, ok := parseMember(first+"+2", true)
	redistest.Check(t, ok && got.tenant == "ten.a:nt+x" && got.label == "h:1" && got.first == first &&
		got.permits == 2 && got.limit == 5 && got.total == 40,
		"a tenant's is read as %+v, %v", got, ok)
	first = "a+b:" + handle + ".7.2.1000.5.3.40"
	got, ok = parseMember(first, true)
	redistest.Check(t, ok && got.tenant == "a+b" && got.first == first, "a tenant's with a plus is read as %+v, %v", got, ok)
	for _, text := range []string{"", "+", ".", "a.b.c.d.e", handle, handle + ".1.1.1", handle + ".1.-1.1.1", handle + ".x.1.1.1", "x" + handle + ".1.1.1.1"} {
		for _, total := range []bool{false, true} {
			m, ok := parseMember(text, total)
			redistest.Check(t, !ok, "%q is read as %+v", text, m)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("leasehold:sem:{n:k}:holders")
	f.Add("AbCdEfGh_-0123456789xy~web-1:4711.7.1.100.1+2")
	f.Fuzz(func(t *testing.T, text string) {
		r, part, ok := parse("leasehold", text)
		redistest.CheckNow(t, !ok || r.Part(part) == text, "%q is read as a part of %+v", text, r)
		parseMember(text, false)
		parseMember(text, true)
	})
}

// A lease may hang once it was renewed for more than ten times its TTL, which may be decades.
func TestOverlong(t *testing.T) {
	for _, c := range []struct {
		ttl, held time.Duration
		want      bool
	}{
		{time.Second, 10 * time.Second, false},
		{time.Second, 10*time.Second + 10, true},
		{50 * 365 * 24 * time.Hour, time.Hour, false},
	} {
		now := time.Now()
		h := Holder{TTL: c.ttl, Holder: leasehold.Holder{Since: now.Add(-c.held)}}
		redistest.Check(t, h.Overlong(now) == c.want, "held for %v, TTL %v: %v", c.held, c.ttl, h.Overlong(now))
	}
}
