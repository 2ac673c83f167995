package guide

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/singleflight"
)

type User struct{ ID, Name string }

// Users loads a user once for all processes. After a minute one process loads it again, while
// the others are served the old value.
type Users struct{ cache *singleflight.Group[User] }

func NewUsers(rdb redis.UniversalClient) (*Users, error) {
	cache, err := singleflight.New(rdb, singleflight.Config[User]{
		Name:     "users",
		TTL:      time.Minute,
		StaleFor: 10 * time.Minute,
	})
	return &Users{cache}, err
}

func (u *Users) Get(ctx context.Context, id string) (User, error) {
	return u.cache.Do(ctx, id, func(ctx context.Context) (User, error) {
		fmt.Println("asking the database for", id)
		return User{ID: id, Name: "Ada"}, nil
	})
}

func (u *Users) Close(ctx context.Context) error { return u.cache.Shutdown(ctx) }
