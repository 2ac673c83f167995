package guide

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/singleflight"
)

type User struct{ ID, Name string }

// A user is loaded once for all processes. After a minute one process loads it
// again, while the others are served the old value.
func cachedUser(ctx context.Context, rdb redis.UniversalClient, id string) (User, error) {
	users, err := singleflight.New(rdb, singleflight.Config[User]{
		Name:     "users",
		TTL:      time.Minute,
		StaleFor: 10 * time.Minute,
	})
	if err != nil {
		return User{}, err
	}
	defer users.Close(ctx)

	return users.Do(ctx, id, func(ctx context.Context) (User, error) {
		fmt.Println("asking the database for", id)
		return User{ID: id, Name: "Ada"}, nil
	})
}
