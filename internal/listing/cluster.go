package listing

import (
	"context"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// cluster is what a listing asks of a Cluster client: single servers that have keys.
type cluster interface {
	ForEachMaster(ctx context.Context, fn func(ctx context.Context, node *redis.Client) error) error
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
}

// clusterOf finds the Cluster client that rdb is or wraps, nil where there is none. A wrapper
// embeds its client or has a method Unwrap. Its own Scan would ask one server only.
func clusterOf(rdb any) cluster {
	for range 10 { // a wrapper may wrap itself
		switch c := rdb.(type) {
		case *redis.ClusterClient:
			if c == nil {
				return nil
			}
			return c
		case interface{ Unwrap() redis.UniversalClient }:
			rdb = c.Unwrap()
			continue
		case interface{ Unwrap() *redis.ClusterClient }:
			rdb = c.Unwrap()
			continue
		}
		wrapped := embedded(rdb)
		if wrapped == nil {
			return nil
		}
		rdb = wrapped
	}
	return nil
}

// embedded is the client that a struct embeds, nil where there is none.
func embedded(rdb any) any {
	v := reflect.Indirect(reflect.ValueOf(rdb))
	if v.Kind() != reflect.Struct {
		return nil
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous && field.IsExported() && field.Type.Implements(reflect.TypeFor[redis.UniversalClient]()) {
			return v.Field(i).Interface()
		}
	}
	return nil
}
