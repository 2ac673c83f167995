package codec_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/codec"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// One value of every code, as long as it can be with little.
var values = []string{
	"\x00", "\x7f", "\xe0", "\xff", "\xc0", "\xc2", "\xc3",
	"\xcc\x01", "\xcd\x01\x02", "\xce\x01\x02\x03\x04", "\xcf\x01\x02\x03\x04\x05\x06\x07\x08",
	"\xd0\x01", "\xd1\x01\x02", "\xd2\x01\x02\x03\x04", "\xd3\x01\x02\x03\x04\x05\x06\x07\x08",
	"\xca\x01\x02\x03\x04", "\xcb\x01\x02\x03\x04\x05\x06\x07\x08",
	"\xa0", "\xa1a", "\xbf" + strings.Repeat("a", 31),
	"\xd9\x00", "\xd9\x01a", "\xda\x00\x01a", "\xdb\x00\x00\x00\x01a",
	"\xc4\x00", "\xc4\x01a", "\xc5\x00\x01a", "\xc6\x00\x00\x00\x01a",
	"\x90", "\x91\xc0", "\x9f" + strings.Repeat("\xc0", 15),
	"\xdc\x00\x00", "\xdc\x00\x01\xc0", "\xdd\x00\x00\x00\x00", "\xdd\x00\x00\x00\x01\xc0",
	"\x80", "\x81\xa0\xc0", "\x8f" + strings.Repeat("\xa0\xc0", 15),
	"\xde\x00\x00", "\xde\x00\x01\xa0\xc0", "\xdf\x00\x00\x00\x00", "\xdf\x00\x00\x00\x01\xa0\xc0",
	"\xd4\x01a", "\xd5\x01aa", "\xd6\x01aaaa", "\xd7\x01aaaaaaaa", "\xd8\x01aaaaaaaaaaaaaaaa",
	"\xc7\x03\x01aaa", "\xc8\x00\x03\x01aaa", "\xc9\x00\x00\x00\x03\x01aaa",
}

func TestBoundedAcceptsEveryCode(t *testing.T) {
	for _, v := range values {
		for _, data := range []string{v, "\x91" + v, "\x92" + v + v, "\x81" + v + v, "\x93\x91" + v + "\x90" + v} {
			redistest.Expect(t, codec.Bounded([]byte(data)), nil, "%q: %v", data)
		}
	}
}

func TestBoundedAcceptsOneValueOnly(t *testing.T) {
	for _, v := range values {
		for n := range len(v) {
			redistest.Check(t, codec.Bounded([]byte(v[:n])) != nil, "%q, cut short from %q, was accepted", v[:n], v)
			redistest.Check(t, codec.Bounded([]byte("\x91"+v[:n])) != nil, "%q in an array, cut short from %q, was accepted", v[:n], v)
		}
		for _, more := range []string{"\xc0", "\x00", v} {
			redistest.Check(t, codec.Bounded([]byte(v+more)) != nil, "%q with %q behind it was accepted", v, more)
		}
	}
}

// bombs are a few bytes each that claim to be much.
var bombs = []string{
	"\xdb\xff\xff\xff\xff", "\xc6\xff\xff\xff\xff", "\xdd\xff\xff\xff\xff", "\xdf\xff\xff\xff\xff",
	"\xc9\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x01", "\xc9\xff\xff\xff\xff\xff", "\xc9\xff\xff\xff\xff\x80",
	"\xdb\x7f\xff\xff\xff", "\xc6\x7f\xff\xff\xff", "\xdd\x7f\xff\xff\xff", "\xdf\x7f\xff\xff\xff", "\xdf\x80\x00\x00\x00",
	"\xda\xff\xff", "\xc5\xff\xff", "\xdc\xff\xff", "\xde\xff\xff", "\xc8\xff\xff\x01",
	"\xd9\xff", "\xc4\xff", "\xc7\xff\x01", "\x9f", "\x8f", "\xbf", "\xd8\x01",
	"\xdd\x00\x00\x00\x02\xc0", "\xdf\x00\x00\x00\x01\xa0", "\xdf\x00\x00\x00\x02\xa0\xc0\xa0", "\xc1", "",
}

// wrapped is a bomb among real values, as deep as real values are.
func wrapped(bomb string) []string {
	deep := strings.Repeat("\x91", 100) + bomb
	return []string{
		bomb, "\x91" + bomb, "\x81\xa1A" + bomb, "\x81" + bomb + "\xc0", deep,
		"\x92\xc0" + bomb, "\x92" + bomb + "\xc0", strings.Repeat("\x81\xa1A", 100) + bomb,
		// Each of the outer ones claims what only the inner ones have.
		strings.Repeat("\xdc\x00\x08", 10) + bomb + strings.Repeat("\xc0", 20),
	}
}

func TestDepthIsBounded(t *testing.T) {
	for what, level := range map[string]string{
		"array": "\x91", "array16": "\xdc\x00\x01", "array32": "\xdd\x00\x00\x00\x01",
		"map": "\x81\xa0", "map16": "\xde\x00\x01\xa0", "map32": "\xdf\x00\x00\x00\x01\xa0",
	} {
		redistest.Expect(t, codec.Bounded([]byte(strings.Repeat(level, 512)+"\xc0")), nil, "%s: 512 deep: %v", what)
		for _, n := range []int{513, 1_000_000} {
			err := codec.Bounded([]byte(strings.Repeat(level, n) + "\xc0"))
			redistest.Check(t, err != nil && strings.Contains(err.Error(), "512 deep"), "%s: %d deep: %v", what, n, err)
		}
	}
	redistest.Check(t, codec.Bounded([]byte(strings.Repeat("\x81", 513)+strings.Repeat("\xc0", 514))) != nil,
		"a map as the key of a map, 513 deep, was accepted")
	redistest.Expect(t, codec.Bounded([]byte("\xdc\x03\xe8"+strings.Repeat("\x90", 1000))), nil, "1000 side by side: %v")
}
