package redistest

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A server that loads its files answers INFO and little else: Restart waits until it has loaded them.
func TestRestartWaitsUntilTheFilesAreLoaded(t *testing.T) {
	for _, v := range NeedServers(t) {
		t.Run(v.Name, func(t *testing.T) {
			s := StartServer(t, v, "--key-load-delay", "1000", "--loading-process-events-interval-bytes", "1024") // 1 ms each
			rdb := s.Client(func(o *redis.Options) { o.MaxRetries = -1 })
			for i := range 500 {
				WantErr(t, rdb.Set(t.Context(), fmt.Sprint(i), "a value of some length", 0).Err())
			}
			WantErr(t, rdb.Save(t.Context()).Err())
			s.Kill()
			s.Restart()
			Expect(t, Must(rdb.DBSize(t.Context()).Result())(t), 500, "there are %d keys; want %d")
		})
	}
}
