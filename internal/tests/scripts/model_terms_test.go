package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
)

// terms are what a request asks for, as its member tells them.
type terms struct {
	handle        string
	seq           int64
	permits       int
	ttl           int64
	limit         int
	member        string
	memberPermits []string

	// In a family with a total:
	key   string
	share float64
	total int
}

func parseTerms(member string) terms {
	key, owner := keyAndOwner(member)
	words := append(strings.Split(owner, "."), make([]string, 6)...)
	number := func(i int) int { n, _ := strconv.Atoi(words[i]); return n }
	t := terms{
		handle: words[0], seq: int64(number(1)), permits: number(2), ttl: int64(number(3)), limit: number(4), member: member,
		memberPermits: []string{member}, key: key, share: float64(number(5)), total: number(6),
	}
	for i := 2; i <= t.permits; i++ {
		t.memberPermits = append(t.memberPermits, fmt.Sprintf("%s+%d", member, i))
	}
	return t
}

// keyAndOwner are the parts of a member; the key is of a family with a total.
func keyAndOwner(member string) (key, owner string) {
	if key, owner, ok := strings.Cut(member, ":"); ok {
		return key, owner
	}
	return "", member
}
