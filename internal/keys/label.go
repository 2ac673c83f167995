package keys

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

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
