package loads

import (
	"fmt"
	"strconv"
	"strings"
)

// Record is the recorded result of a load, for the callers that waited for it.
type Record struct {
	// Stored says that the result is stored as the value. Otherwise only the callers that
	// waited get it.
	Stored bool
	// Invalidated says that a caller that came after the waiter's own enter must not get the
	// result.
	Invalidated bool
	// Freed says that the load ended without a result. Its waiters enter again.
	Freed bool
	// Envelope is the result, or "" if the record does not contain it.
	Envelope string
}

// parseRecord reads the text of a message or of the key landed: a letter followed by an
// envelope.
func parseRecord(text string) (Record, bool) {
	if text == "" {
		return Record{}, false
	}
	r := Record{Envelope: text[1:]}
	switch text[0] {
	case 'S':
		r.Stored = true
	case 'H':
	case 'A':
		r.Invalidated = true
	case 'F':
		r.Freed = true
	default:
		return Record{}, false
	}
	return r, true
}

// ParseRecord reads the content of the key landed: the token of the load, and its record.
func ParseRecord(text string) (uint64, Record, error) {
	words := strings.SplitN(text, " ", 3)
	if len(words) == 3 {
		token, err := strconv.ParseUint(words[0], 10, 64)
		if r, ok := parseRecord(words[2]); ok && err == nil {
			return token, r, nil
		}
	}
	return 0, Record{}, fmt.Errorf("a record of %d bytes that this version does not know", len(text))
}
