package loads

import (
	"errors"
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

// parseRecord reads the end of a message or of the key landed: a letter followed by an envelope.
func parseRecord(number, text string) (token uint64, r Record, err error) {
	if token, err = strconv.ParseUint(number, 10, 64); err != nil || text == "" || !strings.Contains("SHAF", text[:1]) {
		return 0, Record{}, errUnknown
	}
	how := text[0]
	return token, Record{Stored: how == 'S', Invalidated: how == 'A', Freed: how == 'F', Envelope: text[1:]}, nil
}

var errUnknown = errors.New("a record or message that this version does not know")

// ParseRecord reads the content of the key landed: the token of the load, and its record.
func ParseRecord(text string) (uint64, Record, error) {
	words := strings.SplitN(text, " ", 3)
	if len(words) != 3 {
		return 0, Record{}, errUnknown
	}
	return parseRecord(words[0], words[2])
}
