package main

import (
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) { demotest.Main(m, main) }

func TestEachLetterIsSentOnce(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, redis string) { demotest.Check(t, "", redis) })
}

// A process that took over without having been told may try what another does.
func TestLetterIsSentOnceByTwoThatTry(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T, _ string) {
		d, db, err := database.Make(t.Context(), "cron-test", createTables...)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		defer db.Close()
		const tries = 8
		news := make(chan bool, tries)
		for range tries {
			go func() {
				isNew, err := send(t.Context(), db, 1, 1, "A")
				if err != nil {
					t.Error(err)
				}
				news <- isNew
			}()
		}
		n := 0
		for range tries {
			if <-news {
				n++
			}
		}
		if all, err := outbox(t.Context(), db); err != nil || n != 1 || len(all[letter{1, 1}]) != 1 {
			t.Errorf("%d of %d that tried sent the letter; in the outbox are %v, %v", n, tries, all, err)
		}
	})
}
