package migration

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

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
	SaveUser(ctx context.Context, u User) error
}

// program is a version of a program that reads users through a cache.
type program struct {
	get    func(ctx context.Context, id string) (User, error)
	rename func(ctx context.Context, u User) error // changes the database, and invalidates
}

func newUsers(rdb redis.UniversalClient) (*singleflight.Group[User], error) {
	users, err := singleflight.New(rdb, singleflight.Config[User]{Name: "users", TTL: time.Minute})
	if err != nil {
		return nil, err
	}
	return users, nil
}

// leaseholdCache is the last release of each migration.
func leaseholdCache(users *singleflight.Group[User], db database) program {
	return program{
		get: func(ctx context.Context, id string) (User, error) {
			return users.Do(ctx, id, func(ctx context.Context) (User, error) {
				return db.User(ctx, id)
			})
		},
		rename: func(ctx context.Context, u User) error {
			if err := db.SaveUser(ctx, u); err != nil {
				return err
			}
			return users.Invalidate(ctx, u.ID)
		},
	}
}
