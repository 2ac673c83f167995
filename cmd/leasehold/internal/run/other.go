//go:build !unix

package run

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Possible says whether programs can be run: process groups and the guard are Unix's.
const Possible = false

func Inner([]string) (code int, ok bool) { return 0, false }

func DieOf(int) {}

func Run(func(context.Context) ([]redis.UniversalClient, error), Options) (exit int, err error) {
	panic("unreachable")
}
