package keys

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

const (
	// MaxLabel bounds a label, in bytes, as the user wrote it. A member with a short
	// one has at most 64 bytes, up to which Redis keeps a small set compact.
	MaxLabel = 64
	// maxDefaultLabel is how much of the end of host:pid is kept.
	maxDefaultLabel = 20
	// NoLabel is the label that switches labels off.
	NoLabel = "-"
)

// defaultLabel is the host and the process number.
var defaultLabel = sync.OnceValue(func() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return lastBytes(host+":"+strconv.Itoa(os.Getpid()), maxDefaultLabel)
})

// lastBytes is the end of text, n bytes at most.
func lastBytes(text string, n int) string { return text[max(0, len(text)-n):] }

// LabelSuffix is what a handle's id ends with for a label: '~' and the label,
// escaped, so that every listing shows the label, and none needs a Redis key for it.
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

// specialInLabel says which bytes of a label are escaped: those that separate the
// words of a member, and those that separate members in a reply or a message.
func specialInLabel(c byte) bool {
	return c <= ' ' || c == 0x7f || strings.IndexByte(".%+~{}", c) >= 0
}
