package inbox

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// shards is the inbox of a handle on a Cluster, and what it heard.
type shards struct {
	*Sharded
	t        *testing.T
	cluster  *redistest.Cluster
	rdb      *redis.ClusterClient
	messages chan string
	missed   chan string
}

func onCluster(t *testing.T, start func(testing.TB, redistest.Version) *redistest.Cluster) *shards {
	t.Helper()
	b := &shards{t: t, cluster: start(t, redistest.Newest(t)), messages: make(chan string, 100), missed: make(chan string, 100)}
	b.rdb = b.cluster.Client()
	client := redistest.Must(call.NewClient(b.cluster.Client()))(t)
	prefix := redistest.Name(t)
	b.Sharded = NewSharded(client, func(key string) string { return prefix + ":" + key },
		func(m string) { b.messages <- m }, func(key string) { b.missed <- key })
	t.Cleanup(b.Close)
	return b
}

// tell sends a message about key, which has to be heard.
func (b *shards) tell(key string) {
	b.t.Helper()
	text := "about " + key
	redistest.Gives(b.rdb.SPublish(b.t.Context(), b.channel(key), text).Result())(b.t, 1)
	if got := redistest.Get(b.t, "a message", b.messages); got != text {
		b.t.Errorf("heard %q; want %q", got, text)
	}
}

// node is the address of the primary of key.
func (b *shards) node(key string) string { return b.cluster.NodeFor(b.channel(key)).Addr() }

func (b *shards) listeners(key string) (sum int64) {
	b.t.Helper()
	for _, node := range b.cluster.Nodes {
		all, err := node.Client().PubSubShardNumSub(b.t.Context(), b.channel(key)).Result()
		if err != nil {
			b.t.Fatal(err)
		}
		sum += all[b.channel(key)]
	}
	return sum
}

// Keys of all servers are heard, each on one connection to its server, and no longer
// than a moment after they are watched.
func TestShardedHearsKeysOfAllServers(t *testing.T) {
	t.Parallel()
	b := onCluster(t, redistest.SharedCluster)
	var all, awaited []string
	servers := map[string]bool{}
	for i := range 50 {
		key := fmt.Sprint("k", i)
		all = append(all, key)
		servers[b.node(key)] = true
		since := b.Watch(key)
		redistest.CheckNow(t, since.IsZero(), "%s is heard since %v", key, since)
	}
	for range all {
		awaited = append(awaited, redistest.Get(t, "a new subscription", b.missed))
	}
	slices.Sort(awaited)
	want := slices.Sorted(slices.Values(all))
	redistest.CheckNow(t, slices.Equal(awaited, want), "missed %q; want %q", awaited, want)
	for _, key := range all {
		b.tell(key)
		since := b.Watch(key)
		redistest.Check(t, !since.IsZero() && time.Since(since) <= time.Minute, "%s is heard since %v", key, since)
		b.Unwatch(key)
	}
	b.mu.Lock()
	n := len(b.conns)
	redistest.Check(t, n == len(servers), "%d connections to %d servers", n, len(servers))
	b.mu.Unlock()
	for _, key := range all {
		b.Unwatch(key)
	}
	redistest.Eventually(t, "nobody to listen", func() bool {
		return !slices.ContainsFunc(all, func(key string) bool { return b.listeners(key) > 0 })
	})
	redistest.Check(t, len(b.missed) == 0, "it subscribed again although it was in use")
	awaitNoConnection(t, b.Sharded)
}

func awaitNoConnection(t *testing.T, b *Sharded) {
	t.Helper()
	redistest.Eventually(t, "no connection", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.conns)+len(b.channels)+len(b.failures) == 0
	})
}

// A key that is watched again while its channel is being given up is heard. After Close none is.
func TestShardedWatchesAgain(t *testing.T) {
	t.Parallel()
	b := onCluster(t, redistest.SharedCluster)
	b.Watch("other{k}")
	b.Watch("k{k}")
	for range 2 {
		redistest.Get(t, "a new subscription", b.missed)
	}
	for range 20 {
		b.Unwatch("k{k}")
		b.mu.Lock()
		if c := b.channels["k{k}"]; c != nil { // as if the moment were over, and its timer had run
			c.linger.Stop()
			b.forget(c)
		}
		b.mu.Unlock()
		b.Watch("k{k}")
		redistest.Require(t, redistest.Get(t, "a new subscription", b.missed), "k{k}", "missed %q")
		b.tell("k{k}")
	}
	b.Close()
	b.Unwatch("k{k}")
	b.Watch("k{k}")
	b.Unwatch("k{k}")
	b.active.Wait()
}

// The slot of a key moves to another server, which ends its subscription without an
// error. It is subscribed to there, and missed is called, at once. The other keys stay
// as they are. A connection that ends is replaced, and each of its keys is asked for.
func TestShardedFollowsASlot(t *testing.T) {
	t.Parallel()
	b := onCluster(t, redistest.StartPatientCluster)
	stays := "k0"
	for i := 1; b.node(stays) != b.node("k"); i++ {
		stays = fmt.Sprint("k", i)
	}
	for _, key := range []string{"k", stays} {
		b.Watch(key)
		redistest.Get(t, "a new subscription", b.missed)
	}
	for range 4 {
		from := b.node("k")
		var to *redistest.Server
		for _, node := range b.cluster.Nodes[:3] {
			if node.Addr() != from {
				to = node
			}
		}
		began := time.Now()
		b.cluster.MoveSlot(b.channel("k"), to)
		redistest.Require(t, redistest.Get(t, "a new subscription", b.missed), "k", "missed %q")
		t.Logf("heard again %v after the move began", time.Since(began))
		b.tell("k")
		b.tell(stays)
	}
	if b.node("k") != b.node(stays) {
		b.cluster.MoveSlot(b.channel("k"), b.cluster.NodeFor(b.channel(stays)))
		redistest.Get(t, "a new subscription", b.missed)
	}
	for range 3 {
		redistest.WantErr(t, b.cluster.NodeFor(b.channel("k")).Client().Do(t.Context(), "CLIENT", "KILL", "TYPE", "pubsub").Err())
		for range 2 {
			redistest.Get(t, "a new subscription", b.missed)
		}
		b.tell("k")
		b.tell(stays)
	}
	if len(b.missed) > 0 {
		t.Errorf("missed %q, too", <-b.missed)
	}
	b.Unwatch("k")
	b.Unwatch(stays)
	awaitNoConnection(t, b.Sharded)
}

// A server that falls silent delays no process that watches a key of another, and its own
// keys are heard again when it answers.
func TestShardedServerFallsSilent(t *testing.T) {
	t.Parallel()
	b := onCluster(t, redistest.StartPatientCluster)
	other := "k0"
	for i := 1; b.node(other) == b.node("k"); i++ {
		other = fmt.Sprint("k", i)
	}
	b.Watch("k")
	redistest.Get(t, "a new subscription", b.missed)
	node := b.cluster.NodeFor(b.channel("k"))
	node.Pause()
	b.Watch(other)
	redistest.Require(t, redistest.Get(t, "a new subscription", b.missed), other, "missed %q")
	b.tell(other)
	time.Sleep(silence + patience + time.Second)
	node.Resume()
	redistest.Require(t, redistest.Get(t, "a new subscription", b.missed), "k", "missed %q")
	b.tell("k")
}

// fake is a Cluster whose server is a single one.
type fake struct {
	sync.Mutex
	unknown int // look-ups that find no server
	rdb     *redis.Client
	noticed []error
}

// onOne is an inbox of such a Cluster, which sends the keys whose messages may have been missed to missed.
func onOne(t *testing.T, rdb *redis.Client) (b *Sharded, f *fake, missed chan string) {
	f, missed = &fake{rdb: rdb}, make(chan string, 10)
	b = NewSharded(f, func(key string) string { return key }, func(string) {}, func(key string) { missed <- key })
	t.Cleanup(b.Close)
	return b, f, missed
}

func (f *fake) Server(channel string) (string, func(context.Context) call.PubSub) {
	f.Lock()
	defer f.Unlock()
	if f.unknown--; f.unknown >= 0 {
		return "?", nil
	}
	return "one", func(ctx context.Context) call.PubSub { return f.rdb.SSubscribe(ctx, channel) }
}

func (f *fake) Notice(err error) {
	f.Lock()
	defer f.Unlock()
	f.noticed = append(f.noticed, err)
}

// While no server is known for a channel, and while the server refuses it, it is tried
// again, as long as it is watched.
func TestShardedTriesAgain(t *testing.T) {
	t.Parallel()
	srv := redistest.StartServer(t, redistest.Newest(t))
	admin := srv.Client()
	user := func(channels string) {
		t.Helper()
		redistest.WantErr(t, admin.Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "+@all", "~*", "resetchannels", channels).Err())
	}
	user("&allowed*")
	b, f, missed := onOne(t, srv.Client(func(o *redis.Options) { o.Username, o.Password = "u", "p" }))
	f.unknown = 3
	b.Watch("allowed")
	redistest.Require(t, redistest.Get(t, "a new subscription", missed), "allowed", "missed %q")
	b.Watch("refused")
	redistest.Eventually(t, "some refusals", func() bool {
		f.Lock()
		defer f.Unlock()
		return len(f.noticed) > 3
	})
	user("&*")
	redistest.Require(t, redistest.Get(t, "a new subscription", missed), "refused", "missed %q")
	if len(missed) > 0 {
		t.Errorf("missed %q, too: the refusal of one channel is another's", <-missed)
	}
	user("&none")
	b.Unwatch("allowed")
	b.Unwatch("refused")
	awaitNoConnection(t, b)
	b.Watch("refused")
	redistest.Eventually(t, "a refusal", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.channels["refused"].failures > 0
	})
	b.Unwatch("refused")
	awaitNoConnection(t, b)
}
