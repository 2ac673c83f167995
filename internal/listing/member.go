package listing

import (
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// member is what an entry of holders or of a queue says: see
// luascripts/permits/shared/queue.lua.
type member struct {
	first   string // the entry of the request's first permit: all its others begin with it
	extra   bool   // it is one of the other permits
	tenant  string // of a family with a total
	id      string // engine.Request.ID
	label   string
	permits int
	ttl     time.Duration
	limit   int
	total   int // of a family with a total: what the request was made under
}

// parked is what the score of a waiter has on top of its ticket while its sign of
// life is overdue: PARKED in luascripts.
const parked = 1 << 52

// waitingFor is how long a waiter has been in a queue, by its score there.
func waitingFor(now time.Time, score float64) time.Duration {
	return max(0, time.Duration(now.UnixMicro()-int64(score)%parked)*time.Microsecond)
}

// handleLen is how many characters of a handle are random; keys.InSlot and a label may
// follow.
const handleLen = 22

// parseMember reads <handle>.<seq>.<permits>.<ttl ms>.<limit>, with what may stand
// around it: a tenant before, and its share and the total behind; "+2" and so on.
func parseMember(text string, total bool) (m member, ok bool) {
	m.first = text
	if i := strings.LastIndexByte(text, '+'); i > strings.LastIndexByte(text, '.') { // a tenant may have one, too
		m.first, m.extra = text[:i], true
	}
	rest := m.first
	if total {
		// A tenant is escaped and has no colon; a label may have one.
		tenant, behind, found := strings.Cut(rest, ":")
		if !found {
			return member{}, false
		}
		if m.tenant, found = keys.Unescape(tenant); !found {
			return member{}, false
		}
		rest = behind
	}
	words := strings.Split(rest, ".")
	if len(words) < 5 || len(words[0]) < handleLen {
		return member{}, false
	}
	handle, label, labelled := strings.Cut(words[0], "~")
	if len(strings.TrimSuffix(handle, keys.InSlot)) != handleLen {
		return member{}, false
	}
	if labelled {
		if m.label, ok = keys.Unescape(label); !ok {
			m.label = label
		}
	}
	var numbers [4]int64
	for i := range numbers {
		n, err := strconv.ParseInt(words[i+1], 10, 64)
		if err != nil || n < 0 {
			return member{}, false
		}
		numbers[i] = n
	}
	m.id = handle[:8] + "-" + words[1]
	m.permits, m.limit = int(max(1, numbers[1])), int(numbers[3])
	m.ttl = time.Duration(numbers[2]) * time.Millisecond
	if total && len(words) > 6 {
		m.total, _ = strconv.Atoi(words[6])
	}
	return m, true
}
