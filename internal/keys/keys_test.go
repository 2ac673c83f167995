package keys_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

func resource(t *testing.T, f keys.Family, key string) keys.Resource {
	t.Helper()
	return redistest.Must(f.Resource(key))(t)
}

func TestPartsAreNamedAsDocumented(t *testing.T) {
	for _, c := range []struct {
		family    keys.Family
		key       string
		want      string
		wantLabel string
	}{
		{keys.Family{Kind: keys.Semaphore, Name: "exports"}, "acme", "leasehold:sem:{exports:acme}:holders", "exports/acme"},
		{keys.Family{Prefix: "team:app", Kind: keys.Mutex, Name: "n"}, "k", "team:app:mtx:{n:k}:holders", "n/k"},
		{keys.Family{Kind: keys.Guard, Name: "a:b"}, "{c}%", "leasehold:grd:{a%3Ab:%7Bc%7D%25}:holders", "a%3Ab/%7Bc%7D%25"},
		{keys.Family{Kind: keys.Mutex, Name: "n"}, "\x00\n\x7fé\xff", "leasehold:mtx:{n:%00%0A%7Fé\xff}:holders", "n/%00%0A%7Fé\xff"},
		{keys.Family{Kind: keys.Flight, Name: "a/b"}, "c/", "leasehold:flt:{a/b:c/}:holders", "a/b/c/"},
		{keys.Family{Kind: keys.Semaphore, Name: "n/", Whole: true}, "", "leasehold:sem:{n/:}:holders", "n/"},
	} {
		r := resource(t, c.family, c.key)
		redistest.Expect(t, r.Part("holders"), c.want, "the key is %q")
		redistest.Expect(t, r.Label(), c.wantLabel, "the label is %q")
		redistest.Expect(t, fmt.Sprint(r.Parts("queue", "holders")), fmt.Sprint([]string{r.Part("queue"), c.want}), "the parts are %s")
	}
	redistest.Expect(t, (keys.Family{Prefix: "p", Kind: keys.Mutex, Name: "n"}).Inbox("h"), "p:inbox:h", "the inbox is %q")
	redistest.Expect(t, (keys.Family{Kind: keys.Mutex, Name: "n"}).Inbox("h"), "leasehold:inbox:h", "the inbox is %q")
}

func TestKeysAreBounded(t *testing.T) {
	f := keys.Family{Kind: keys.Mutex, Name: "n"}
	for _, n := range []int{1, 512} {
		resource(t, f, strings.Repeat("{", n))
	}
	for n, want := range map[int]string{0: "empty", 513: "513", 10 << 10: "10240"} {
		_, err := f.Resource(strings.Repeat("{", n))
		redistest.Check(t, err != nil && strings.Contains(err.Error(), want) && strings.Contains(err.Error(), "512"),
			"a key of %d bytes: %v", n, err)
	}
}

func TestHashShowsNothingOfTheKey(t *testing.T) {
	f := keys.Family{Kind: keys.Mutex, Name: "n", Hash: true}
	a, b := resource(t, f, "alice@example.com"), resource(t, f, "alice@example.con")
	redistest.CheckNow(t, a != b && a == resource(t, f, "alice@example.com"), "%v and %v", a, b)
	for _, text := range []string{a.Label(), a.Part("holders")} {
		redistest.Check(t, !strings.Contains(text, "alice") && !strings.Contains(text, "@"), "%q shows the key", text)
	}
	_, err := f.Resource("")
	redistest.Check(t, err != nil, "an empty key is hashed")
	_, err = f.Resource(strings.Repeat("x", 513))
	redistest.Check(t, err != nil, "a key of 513 bytes is hashed")
}

func TestCheckNamesEachBadField(t *testing.T) {
	long := strings.Repeat("x", 513)
	for _, c := range []struct {
		family keys.Family
		want   []string // of each error
	}{
		{keys.Family{Name: "n"}, nil},
		{keys.Family{Name: "{}:%\x00", Prefix: "team:app"}, nil},
		{keys.Family{Name: long[1:], Prefix: long[1:]}, nil},
		{keys.Family{}, []string{"Name is empty"}},
		{keys.Family{Name: long, Prefix: long}, []string{"Name has 513", "Prefix has 513"}},
		{keys.Family{Prefix: "a{b"}, []string{"Name is empty", `Prefix`}},
		{keys.Family{Name: "n", Prefix: "a\x1b"}, []string{`'\x1b'`}},
		{keys.Family{Name: "n", Prefix: "a\x7f"}, []string{`'\x7f'`}},
	} {
		errs := c.family.Check()
		if len(errs) != len(c.want) {
			t.Errorf("%+v: %v, want %d errors", c.family, errs, len(c.want))
			continue
		}
		for i, err := range errs {
			redistest.Check(t, strings.Contains(err.Error(), c.want[i]), "%q does not say %q", err, c.want[i])
		}
	}
}
