package migration

import (
	"context"
	"errors"
	"time"

	"github.com/go-redis/cache/v9"

	"github.com/leasehold-go/leasehold/singleflight"
)

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
		rename: func(ctx context.Context, u User) error {
			if err := db.SaveUser(ctx, u); err != nil {
				return err
			}
			return users.Delete(ctx, "user:"+u.ID)
		},
	}
}

// goredisCacheBoth is program p, whose changes reach both caches.
func goredisCacheBoth(p program, old *cache.Cache, users *singleflight.Group[User], db database) program {
	p.rename = func(ctx context.Context, u User) error {
		if err := db.SaveUser(ctx, u); err != nil {
			return err
		}
		return errors.Join(old.Delete(ctx, "user:"+u.ID), users.Invalidate(ctx, u.ID))
	}
	return p
}
