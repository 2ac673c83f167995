package browsertest

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

// One goes through the page of examples/hotkey as a user that sees it for the first time
// would. The program, which this test builds, runs until it is interrupted.
func TestHotkey(t *testing.T) {
	chromium(t)
	bin := filepath.Join(t.TempDir(), "hotkey")
	build := exec.Command("go", "build", "-o", bin, "./examples/hotkey")
	build.Dir = "../../../.." // the library's module
	out, err := build.CombinedOutput()
	redistest.CheckNow(t, err == nil, "go build: %v\n%s", err, out)
	cmd := exec.Command(bin, "-addr", "127.0.0.1:0")
	cmd.Stderr = os.Stderr
	stdout := redistest.Must(cmd.StdoutPipe())(t)
	redistest.WantErr(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		kill := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		redistest.Expect(t, cmd.Wait(), nil, "the interrupted program: %v")
	})
	address := ""
	for lines := bufio.NewScanner(stdout); address == "" && lines.Scan(); {
		address = regexp.MustCompile(`http://[^ ]+`).FindString(lines.Text())
	}
	redistest.CheckNow(t, address != "", "the program prints no address")

	const (
		mode = `document.body.dataset.mode === `
		bars = `[...document.querySelectorAll("#bars li")].map((b) => Number(b.textContent))`
		row  = `[...document.querySelector('#rows [data-mode="`
		cell = `"]').cells].map((c) => Number(c.textContent))`
	)
	b := open(t, address)
	b.until("protected, and two expiries", mode+`"on" && `+bars+`.length >= 2 && `+bars+`.every((n) => n === 1)`)
	b.until("it says so", `document.getElementById("name").textContent === "Protected."`)
	ask[bool](b, `(document.getElementById("protect").click(), true)`)
	b.until("a stampede", mode+`"off" && `+bars+`.some((n) => n > 3)`)
	b.until("it says so", `document.getElementById("name").textContent === "Unprotected."`)
	ask[bool](b, `(document.getElementById("protect").click(), true)`)
	b.until("calm again", mode+`"on" && `+bars+`.length >= 2 && `+bars+`.every((n) => n === 1)`)
	ask[bool](b, `(document.getElementById("stale").click(), true)`)
	b.until("stale values", mode+`"stale" && `+row+`stale`+cell+`[7] > 0`)
	ask[bool](b, `(document.getElementById("invalidate").click(), true)`)
	b.until("more expiries, with a load each", row+`stale`+cell+`[2] > 3 && `+row+`stale`+cell+`[3] === `+row+`stale`+cell+`[2]`)
	ask[bool](b, `(document.getElementById("near").click(), true)`)
	b.until("values from memory", mode+`"near" && `+row+`near`+cell+`[9] > 0`)
	b.until("nothing to complain of", `document.getElementById("alert").hidden`)
	b.noFaults()
}
