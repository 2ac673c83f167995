package mutex

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/lease"
	"github.com/leasehold-go/leasehold/internal/quorum"
)

// NewQuorum returns a handle on locks that several independent servers decide: 3, 5, 7 or 9, each
// with one vote. A lock is held by the request that has the votes of a majority. There is at most
// one holder, and tokens rise, as long as no majority of the servers forgets at the same time or
// has a clock that jumps. A server that was restarted, empty or with an old snapshot, or was
// flushed, abstains for one TTL. docs/quorum.md says who needs that, and what else there is.
//
// The methods are those of [New]'s handle. The rules that differ:
//
//   - The clients are those of single servers, and Replicas, LocalFor and KeepFor are 0. All
//     handles of a family have the same TTL; to change it, let all locks end first.
//   - [Lock.Extend] sets at most TTL. [Mutex.Inspect] and [Mutex.Revoke] go by the majority.
//   - The user needs +info, too. Keys are <prefix>:qmx:{<name>:<key>}:<part>, and
//     <prefix>:qmx:{<name>}:born, which has no expiry.
//
// NewQuorum asks each server for its run id, and refuses a server that is there twice. It waits for
// at most 1 s: once a majority has answered, only for as long again, or 0.1 s. The first lock of a
// family on new servers needs all of them. A free lock costs one round trip to all servers at the
// same time, or two.
func NewQuorum(rdbs []redis.UniversalClient, cfg Config) (*Mutex, error) {
	settings := cfg.manager()
	settings.Family.Kind = keys.Quorum
	servers, errs := quorum.New(rdbs, settings.Family)
	errs = append(errs,
		keys.Unless(cfg.LocalFor == 0, "LocalFor", "is %v; want 0: a lock of a quorum does not stay in a process", cfg.LocalFor),
		keys.Unless(cfg.KeepFor == 0, "KeepFor", "is %v; want 0: a lock of a quorum is not kept after its use", cfg.KeepFor),
		keys.Unless(cfg.Replicas == 0, "Replicas", "is %d; want 0: the servers of a quorum are independent", cfg.Replicas))
	settings.Replicas = 0
	settings.Protocol, settings.Quorum = servers, servers
	m, err := lease.New(nil, settings, errs...)
	if err != nil {
		return nil, err
	}
	return &Mutex{family: settings.Family, manager: m, quorum: servers, maxWait: cfg.MaxWait}, nil
}

func (m *Mutex) inspectQuorum(ctx context.Context, key string) (State, error) {
	seen, err := m.quorum.Inspect(ctx, m.manager, key)
	if err != nil {
		return State{}, err
	}
	return State{Held: seen.Holder != nil, Holder: seen.Holder, LastToken: seen.Token, Waiting: len(seen.Waiters), Waiters: seen.Waiters}, nil
}
