package listing

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/internal/call"
)

// cluster is what a listing asks of a Cluster client: single servers that have keys.
type cluster interface {
	ForEachMaster(ctx context.Context, fn func(ctx context.Context, node *redis.Client) error) error
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// clusterOf finds the Cluster client that rdb is or wraps, nil where there is none. The Scan of a
// wrapper would ask one server only.
func clusterOf(rdb redis.UniversalClient) cluster {
	layers, _ := call.Layers(rdb)
	for _, layer := range layers {
		if c, ok := layer.(cluster); ok {
			return c
		}
	}
	return nil
}

// primary returns the client that reads key at its primary. A Cluster client that reads from replicas would ask one of
// them: it lags behind, and the next page may come from another, which scans in an order of its own.
func (l *Lister) primary(ctx context.Context, key string) redis.Cmdable {
	if l.replicas {
		if node, err := l.cluster.MasterForKey(ctx, key); err == nil {
			return node
		}
	}
	return l.rdb
}
