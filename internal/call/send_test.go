package call_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/engine"
	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// lockOf is an attempt to lock a key of a family.
func lockOf(t *testing.T, name, key string) *engine.Request {
	t.Helper()
	r, err := keys.Family{Kind: keys.Mutex, Name: name}.Resource(key)
	if err != nil {
		t.Fatal(err)
	}
	return engine.NewRequest(engine.NewResource(r, true), hereHandle, 1, 1, time.Minute, 1)
}

// forgets makes a server forget its scripts right after it was taught one.
type forgets struct {
	times int
	other *redis.Client
}

func (f *forgets) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *forgets) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *forgets) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if f.times > 0 && cmds[0].Name() == "eval" {
			f.times--
			f.other.ScriptFlush(ctx)
		}
		return err
	}
}

// A server that forgets its scripts while it is taught them (SCRIPT FLUSH, another
// one after a move) fails nobody's call.
func TestScriptsForgottenWhileTheyAreTaught(t *testing.T) {
	mini := redistest.Mini(t)
	other := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	rdb := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _, _ = other.Close(), rdb.Close() })
	rdb.AddHook(&forgets{times: 3, other: other})
	eng, err := engine.New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	calls := make([]*engine.Call, 6)
	answered := 0
	for i := range calls {
		calls[i] = lockOf(t, "taught", fmt.Sprint(i)).Enter(engine.EnterOptions{})
		calls[i].Done = func(v []int64, err error) {
			if err != nil || len(v) == 0 || engine.Code(v[0]) != engine.Granted {
				t.Errorf("call %d: %v, %v; want a grant", i, v, err)
			}
			answered++
		}
	}
	eng.Send(context.Background(), calls)
	if answered != len(calls) {
		t.Errorf("%d calls were answered; want %d", answered, len(calls))
	}
}

// Calls for one node of a Cluster don't wait for those of another that hangs.
func TestNodeThatHangsHoldsUpNoOthersCalls(t *testing.T) {
	redistest.NeedServers(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Newest(t))
	rdb := cluster.Client(func(o *redis.ClusterOptions) { o.ReadTimeout = 5 * time.Second })
	eng, err := engine.New(rdb)
	if err != nil {
		t.Fatal(err)
	}
	bad := cluster.Nodes[0]
	var sick, well []*engine.Request
	for i := 0; len(sick) < 40 || len(well) < 40; i++ {
		r := lockOf(t, "hangs", fmt.Sprint(i))
		if cluster.NodeFor(r.Holders()) == bad {
			sick = append(sick, r)
		} else {
			well = append(well, r)
		}
	}
	enter := func(r *engine.Request) error {
		_, err := eng.Do(context.Background(), r.Enter(engine.EnterOptions{}))
		return err
	}
	for _, r := range []*engine.Request{sick[0], well[0]} { // the scripts are known, and the topology
		if err := enter(r); err != nil {
			t.Fatal(err)
		}
	}
	bad.Pause()
	var hanging, others sync.WaitGroup
	began := time.Now()
	for i, r := range well { // of both nodes, by turns
		hanging.Go(func() { _ = enter(sick[i%len(sick)]) })
		others.Go(func() {
			if err := enter(r); err != nil {
				t.Errorf("on a node that is well: %v", err)
			}
		})
	}
	others.Wait()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("calls of nodes that are well took %v", took)
	}
	bad.Resume()
	hanging.Wait()
}
