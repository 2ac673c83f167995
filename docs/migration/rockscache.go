package migration

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dtm-labs/rockscache"

	"github.com/leasehold-go/leasehold/singleflight"
)

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
		rename: func(ctx context.Context, u User) error {
			if err := db.SaveUser(ctx, u); err != nil {
				return err
			}
			return users.TagAsDeleted2(ctx, "user:"+u.ID)
		},
	}
}

// rockscacheBoth is program p, whose changes reach both caches.
func rockscacheBoth(p program, old *rockscache.Client, users *singleflight.Group[User], db database) program {
	p.rename = func(ctx context.Context, u User) error {
		if err := db.SaveUser(ctx, u); err != nil {
			return err
		}
		return errors.Join(old.TagAsDeleted2(ctx, "user:"+u.ID), users.Invalidate(ctx, u.ID))
	}
	return p
}
