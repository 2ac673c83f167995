package text

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON encodes v in one line that is harmless on a terminal: characters that would act on it,
// such as U+009B or U+202E, are escaped. They can only be within strings, whose meaning stays.
func JSON(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf && r != 0x7f || harmless(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String() + "\n", nil
}

// Base64 is a name that JSON can't hold because it is no UTF-8, and "" of any other.
func Base64(name string) string {
	if utf8.ValidString(name) {
		return ""
	}
	return base64.StdEncoding.EncodeToString([]byte(name))
}
