package main

import (
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/examples/internal/demotest"
	"github.com/leasehold-go/leasehold/internal/database"
)

func TestMain(m *testing.M) {
	program.RunIfChild()
	os.Exit(m.Run())
}

func TestEachLetterIsSentOnce(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) { demotest.Check(t, program.Show) })
}

// A process that took over without having been told may try what another does.
func TestLetterIsSentOnceByTwoThatTry(t *testing.T) {
	demotest.OnEachDatabase(t, func(t *testing.T) {
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

// The verdict must find fault with each of these.
func TestVerdictFindsFault(t *testing.T) {
	for want, spoil := range map[string]func(sent, early map[letter][]string){
		"":                               func(_, _ map[letter][]string) {},
		"letter 3 of night 2 was sent 2": func(sent, _ map[letter][]string) { sent[letter{2, 3}] = []string{"A", "B"} },
		"letter 4 of night 3 was sent 0": func(sent, _ map[letter][]string) { delete(sent, letter{3, 4}) },
		"while Redis was away":           func(_, early map[letter][]string) { early[letter{3, 1}] = []string{"C"} },
		"nobody took over": func(sent, _ map[letter][]string) {
			for n := range letters {
				sent[letter{2, n + 1}] = []string{"B"}
			}
		},
	} {
		sent, early := map[letter][]string{}, map[letter][]string{}
		for night := 1; night <= nights; night++ {
			for n := 1; n <= letters; n++ {
				by := "A"
				if night == 2 && n <= 5 {
					by = "B"
				}
				sent[letter{night, n}] = []string{by}
				if night < 3 {
					early[letter{night, n}] = []string{by}
				}
			}
		}
		spoil(sent, early)
		if problems := strings.Join(verdict(sent, early, "B"), "\n"); !strings.Contains(problems, want) || want == "" && problems != "" {
			t.Errorf("no word of %q in %q", want, problems)
		}
	}
}
