package redistest

import (
	"bufio"
	"strings"
	"testing"
)

func TestFramesAreReadWholeAndUnchanged(t *testing.T) {
	frames := []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n", "_\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n",
		"$4\r\na\r\nb\r\n", "$0\r\n\r\n", "=7\r\ntxt:a\r\n\r\n", "!5\r\nERR x\r\n",
		"*0\r\n", "*2\r\n*1\r\n:1\r\n$1\r\na\r\n", "%1\r\n+k\r\n~1\r\n:1\r\n",
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n",
		"|1\r\n+ttl\r\n:3600\r\n:7\r\n", "*2\r\n|1\r\n+a\r\n+b\r\n:1\r\n:2\r\n",
	}
	r := bufio.NewReader(strings.NewReader(strings.Join(frames, "")))
	for _, want := range frames {
		f, err := readFrame(r)
		CheckNow(t, err == nil && string(f.raw) == want, "%q was read as %q, %v", want, f.raw, err)
	}
}

func TestBadFramesAreRefused(t *testing.T) {
	for _, bad := range []string{
		"", "\r\n", "+OK", "+OK\n", "?1\r\n", "$x\r\n", "$-2\r\n", "$99999999999\r\n", "$5\r\nab\r\n", "*1\r\n", "*2\r\n:1\r\n",
	} {
		if f, err := readFrame(bufio.NewReader(strings.NewReader(bad))); err == nil {
			t.Errorf("%q was read as %q", bad, f.raw)
		}
	}
}
