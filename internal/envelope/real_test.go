package envelope_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/envelope"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// An envelope can be read where it lies, all but its payload (cmsgpack knows no
// bin), and the stamp that a script puts in is the one of Join.
func TestRedisReadsEnvelopes(t *testing.T) {
	const stampIt = `return ARGV[1] .. string.format('%016.0f', tonumber(ARGV[3])) .. ARGV[2]`
	const readIt = `local e = { cmsgpack.unpack_limit(ARGV[1], 8, 1) }
		for i, v in ipairs(e) do
			if type(v) == 'number' then e[i] = string.format('%.0f', v) end
		end
		return e`
	redistest.EachReal(t, func(t *testing.T, target redistest.Target) {
		ctx, rdb := context.Background(), target.Client(t)
		for _, n := range []int{0, 3, 255, 256, 65536} {
			e := example()
			e.Payload = strings.Repeat("\x00\xffé", n)[:n]
			prefix, suffix := e.Encode()
			data, err := rdb.Eval(ctx, stampIt, nil, prefix, suffix, int64(published)).Text()
			redistest.CheckNow(t, err == nil && data == stored(e), "%d bytes: stamped as %.60q, %v; want %.60q", n, data, err, stored(e))
			got, err := rdb.Eval(ctx, readIt, nil, data).StringSlice()
			redistest.CheckNow(t, err == nil && len(got) == 9, "%d bytes: unpacked as %d fields, %v", n, len(got), err)
			got[3] = "" // the checksum
			want := []string{"60", "lh1", fmt.Sprint(int64(published)), "", fmt.Sprint(byte(envelope.Value)), "7", "60000", "3600000", "1500"}
			for i := range want {
				redistest.Check(t, got[i] == want[i], "%d bytes: field %d is %.40q, want %.40q", n, i, got[i], want[i])
			}
		}
	})
}
