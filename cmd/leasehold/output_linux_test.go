package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
)

// An answer that can't be written is no answer, whether the disk is full or the reader gone.
func TestAnswerThatCannotBeWrittenIsAnError(t *testing.T) {
	t.Parallel()
	addr, rdb := server(t)
	name := redistest.Name(t)
	locks := openLocks(t, rdb, mutex.Config{Name: name})
	l, err := locks.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no full disk here")
	}
	defer full.Close()
	r, closed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer closed.Close()
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}, {"show", "--mutex", name, "--key", "k"}, {"show", "--json", "--mutex", name, "--key", "k"}, {"help"}, {"run", "--help"}} {
		for about, out := range map[string]*os.File{"a full disk": full, "a reader that has gone": closed} {
			cmd := command(t, "redis://"+addr, args...)
			var errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = out, &errs
			_ = cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 74 || !strings.Contains(errs.String(), "standard output") {
				t.Errorf("%v with %s ends with %d: %s", args, about, code, errs.String())
			}
		}
	}
	redistest.WantErr(t, l.Unlock())
}

// A URL in the wrong place is quoted in no error.
func TestURLInTheWrongPlaceIsNotShown(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"redis://:S3cr3t@h"}, {"ls", "a", "redis://:S3cr3t@h"}, {"ls", "--sort", "redis://:S3cr3t\"@h"}, {"--redi=redis://:S3cr3t@h", "ls"}} {
		x := start(t, "redis://127.0.0.1:1", args...)
		if code := x.code(); code != 64 || strings.Contains(x.stderr.String(), "S3c") {
			t.Errorf("%v ends with %d: %s", args, code, x.stderr.String())
		}
	}
}
