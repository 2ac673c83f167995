package migration

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/go-redis/cache/v9"

	"github.com/leasehold-go/leasehold/singleflight"
)

// User is what is cached.
type User struct {
	ID   string
	Name string
}

// database is where users come from.
type database interface {
	User(ctx context.Context, id string) (User, error)
}

// program is a version of a program that reads users through a cache.
type program struct {
	get        func(ctx context.Context, id string) (User, error)
	invalidate func(ctx context.Context, id string) error // after a change of the database
}

func goredisCacheOnly(users *cache.Cache, db database) program {
	return program{
		get: func(ctx context.Context, id string) (User, error) {
			var u User
			err := users.Once(&cache.Item{
				Ctx: ctx, Key: "user:" + id, Value: &u, TTL: time.Minute,
				Do: func(*cache.Item) (any, error) { return db.User(ctx, id) },
			})
			return u, err
		},
		invalidate: func(ctx context.Context, id string) error {
			return users.Delete(ctx, "user:"+id)
		},
	}
}

func rockscacheOnly(users *rockscache.Client, db database) program {
	return program{
		get: func(ctx context.Context, id string) (User, error) {
			var u User
			text, err := users.Fetch2(ctx, "user:"+id, time.Minute, func() (string, error) {
				u, err := db.User(ctx, id)
				if err != nil {
					return "", err
				}
				text, err := json.Marshal(u)
				return string(text), err
			})
			if err != nil {
				return u, err
			}
			return u, json.Unmarshal([]byte(text), &u)
		},
		invalidate: func(ctx context.Context, id string) error {
			return users.TagAsDeleted2(ctx, "user:"+id)
		},
	}
}

// leaseholdCache is the last release of each migration.
func leaseholdCache(users *singleflight.Group[User], db database) program {
	return program{
		get: func(ctx context.Context, id string) (User, error) {
			return users.Do(ctx, id, func(ctx context.Context) (User, error) {
				return db.User(ctx, id)
			})
		},
		invalidate: func(ctx context.Context, id string) error {
			return users.Invalidate(ctx, id)
		},
	}
}

// invalidatesBoth is p with changes that also reach the cache of other.
func invalidatesBoth(p, other program) program {
	return program{get: p.get, invalidate: func(ctx context.Context, id string) error {
		return errors.Join(p.invalidate(ctx, id), other.invalidate(ctx, id))
	}}
}
