package near

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/loads"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// A copy that is not in the table is never found without its mark, whatever goes on at the same time.
func TestTableFindsNothingThatWasTakenOut(t *testing.T) {
	t.Parallel()
	s := store{table: newTable(), most: 1 << 20}
	const keys = 500
	slots := make([]*slot, keys)
	for i := range slots {
		slots[i] = &slot{Key: Key{Name: strconv.Itoa(i)}}
	}
	var removed [keys]atomic.Pointer[Copy] // the last one taken out, of each key
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for !done.Load() {
				i := rand.IntN(keys)
				gone := removed[i].Load()
				c := s.get(strconv.Itoa(i))
				redistest.Check(t, c == nil || c != gone || c.dropped.Load(), "key %d: a copy that was taken out is found without its mark", i)
			}
		})
	}
	for range 200_000 {
		i := rand.IntN(keys)
		if c := slots[i].copy; c != nil && rand.IntN(2) == 0 {
			s.remove(c)
			removed[i].Store(c)
			continue
		}
		old := slots[i].copy
		s.add(&Copy{slot: slots[i], size: overhead}, func(out *Copy) {})
		if old != nil {
			removed[i].Store(old)
		}
	}
	done.Store(true)
	readers.Wait()
	n := 0
	for c := s.hand; c != nil && (n == 0 || c != s.hand); c = c.next {
		n++
		redistest.Check(t, s.get(c.slot.Name) == c, "the copy of %s is in the ring and not in the table", c.slot.Name)
	}
	redistest.Check(t, n == s.count && s.bytes == n*overhead, "%d copies in the ring, %d in the table, %d bytes", n, s.count, s.bytes)
}

// The store stays within its bytes, and keeps what is used.
func TestStoreKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	s := store{table: newTable(), most: 100 * overhead}
	hot := &Copy{slot: &slot{Key: Key{Name: "hot"}}, size: overhead}
	s.add(hot, func(*Copy) {})
	for i := range 10_000 {
		hot.used.Store(true)
		size := overhead * (1 + i%5)
		s.add(&Copy{slot: &slot{Key: Key{Name: fmt.Sprint(i)}}, size: size}, func(out *Copy) {
			if out == hot || !out.dropped.Load() || s.get(out.slot.Name) == out {
				t.Fatalf("%s was taken out, marked %v", out.slot.Name, out.dropped.Load())
			}
		})
		redistest.CheckNow(t, s.bytes <= s.most, "%d bytes; want at most %d", s.bytes, s.most)
	}
	redistest.Check(t, s.get("hot") == hot, "a copy that was used all the time is gone")
	redistest.Check(t, !s.fits(s.most), "a copy as large as the store fits")
}

// The size of a copy counts all names that are kept, also those that escaping makes long.
func TestSizeCountsEveryName(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"k", strings.Repeat("x", keys.MaxLen), strings.Repeat(":", keys.MaxLen)} {
		r := redistest.Must(keys.Family{Kind: keys.Flight, Name: "users"}.Resource(key))(t)
		k, near := Key{Resource: r, Name: key, Value: loads.Part(r, "value", 0)}, loads.Near(r)
		names := []string{k.Name, k.Value, near, strings.TrimSuffix(near, "near")}
		alone := overhead + len(strings.Join(names, ""))
		names = append(names, near, keys.InboxAt(near, ""))
		together := overhead + inCluster + len(strings.Join(names, ""))
		redistest.Check(t, sizeOf(k, 0, false) >= alone && sizeOf(k, 0, true) >= together,
			"a key of %d bytes takes %d, on a Cluster %d; want at least %d and %d",
			len(key), sizeOf(k, 0, false), sizeOf(k, 0, true), alone, together)
	}
}

// Two keys of the same set that are read in turn do not hide each other.
func TestDoorHasTwoSlots(t *testing.T) {
	t.Parallel()
	d := newDoor(MinBytes, time.Second)
	const one, other = uint64(1) << 40, uint64(2) << 40 // of the same set
	hot := map[uint64]int{}
	for range registerAt {
		for _, hash := range []uint64{one, other} {
			if d.knock(hash, 0) {
				hot[hash]++
			}
		}
	}
	redistest.Check(t, hot[one] == 1 && hot[other] == 1,
		"of two keys that were read %d times in turn these are hot: %v", registerAt, hot)
}

// Reads that are further apart than the window do not add up, and a key that is forgotten starts anew.
func TestDoorCountsWithinTheWindow(t *testing.T) {
	t.Parallel()
	d := newDoor(MinBytes, time.Second)
	for i := range int64(100) {
		redistest.CheckNow(t, !d.knock(7, i*int64(time.Second)*2/5), "hot at three reads per window, at read %d", i)
	}
	for i := range registerAt {
		redistest.Expect(t, d.knock(9, 0), i == registerAt-1, "hot at read %d: %v", i+1)
	}
	d.forget(9)
	redistest.Check(t, !d.knock(9, 0), "hot at the first read after it was forgotten")
}
