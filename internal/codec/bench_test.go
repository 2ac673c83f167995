package codec_test

import (
	"time"
)

// user is a value as small as those that many caches are full of.
type user struct {
	ID      int64
	Name    string
	Email   string
	Active  bool
	Score   float64
	Created time.Time
	Roles   []string
}

func someUser() user {
	return user{
		ID: 4711, Name: "Ada Lovelace", Email: "ada@example.com", Active: true, Score: 0.5,
		Created: time.Unix(1_700_000_000, 123_000_000), Roles: []string{"admin", "author"},
	}
}

func repeat[T any](v T, n int) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}
