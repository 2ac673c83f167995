package listing

import (
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
)

// member is the content of an entry of holders or of a queue, as described in
// luascripts/permits/shared/queue.lua.
type member struct {
	first   string // the entry of the request's first permit; those of its other permits begin with it
	tenant  string // in a family with a total
	id      string // protocol.Request.ID
	label   string
	keeps   bool // its handle may keep leases that nobody uses
	permits int
	ttl     time.Duration
	limit   int
	total   int // in a family with a total: the total that the request was made under
}

// parked is added to the ticket in the score of a waiter that is overdue with its call: PARKED in
// luascripts. In a queue of a quorum it is subtracted from that of a holder: FIRST.
const parked = 1 << 52

// waitingFor returns how long a waiter with this score has been in a queue.
func waitingFor(now time.Time, score float64) time.Duration {
	return max(0, time.Duration(now.UnixMicro()-(int64(score)+parked)%parked)*time.Microsecond)
}

// handleLen is the number of random characters of a handle. keys.InSlot, keys.Keeps and a label
// may follow.
const handleLen = 22

func membersOf(entries []redis.Z) []string {
	all := make([]string, len(entries))
	for i, z := range entries {
		all[i], _ = z.Member.(string)
	}
	return all
}

func memberOf(z redis.Z, total bool) (m member, ok bool) {
	text, _ := z.Member.(string)
	return parseMember(text, total)
}

// parseMember reads <handle>.<seq>.<permits>.<ttl ms>.<limit>. With total, a tenant comes
// before this, and the share and the total come after it. "+2" and so on may follow.
func parseMember(text string, total bool) (m member, ok bool) {
	m.first = text
	// A '+' before the last dot belongs to the tenant.
	if i := strings.LastIndexByte(text, '+'); i > strings.LastIndexByte(text, '.') {
		m.first = text[:i]
	}
	rest := m.first
	if total {
		// The first colon ends the tenant: a tenant is escaped and has none, but a label may.
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
	handle, m.keeps = strings.CutSuffix(handle, keys.Keeps)
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
