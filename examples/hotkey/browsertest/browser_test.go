package browsertest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// chromium finds a browser.
func chromium(t *testing.T) string {
	t.Helper()
	names := []string{os.Getenv("LEASEHOLD_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}
	for _, name := range names {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path
		}
	}
	const none = "no Chromium found: the page was not tested"
	if os.Getenv("LEASEHOLD_REQUIRE_BROWSER") == "1" {
		t.Fatal(none)
	}
	t.Skip(none)
	return ""
}

// browser is a page that is open in Chromium.
type browser struct {
	t    *testing.T
	ctx  context.Context
	host string

	mu     sync.Mutex
	faults []string
}

// open opens url, and notes whatever the page complains about from then on.
func open(t *testing.T, path, address string) *browser {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox, // so that it starts as root, in a container
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(1200, 1500),
	)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until it is gone, with its files
		cancel()
	})
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, ctx: ctx, host: to.Host}
	if err := chromedp.Listen(ctx, b.note); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(address))
	return b
}

// note takes down what is wrong: errors, and whatever is fetched from elsewhere.
func (b *browser) note(event any) {
	fault := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			fault = "console:"
			for _, arg := range e.Args {
				fault += " " + string(arg.Value) + arg.Description
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			fault = fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		if to, err := url.Parse(e.Request.URL); err != nil || to.Host != b.host {
			fault = "fetched from elsewhere: " + e.Request.URL
		}
	}
	if fault != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.faults = append(b.faults, fault)
	}
}

func (b *browser) noFaults() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		b.t.Errorf("the page's console and network:\n%s", strings.Join(b.faults, "\n"))
	}
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func run[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func (b *browser) click(id string) {
	b.t.Helper()
	b.do(chromedp.Click("#" + id))
}

// figures is what the page says, as it stands in its text.
type figures struct {
	Mode     string
	Epoch    int
	State    string
	Expiries int
	Loads    int
	Running  int
	Per      float64
	Rate     int
	Hits     int
	Stale    int
	Waits    int
	Errors   int
	Bars     int
	Points   int
}

const read = `(() => {
	const num = (e) => Number(e.textContent.replaceAll(",", ""));
	const id = (name) => num(document.getElementById(name));
	const total = [...document.querySelectorAll("#total td")].map(num);
	const {mode, epoch} = document.body.dataset;
	return {
		Mode: mode, Epoch: Number(epoch ?? 0), State: document.getElementById("state-name").textContent,
		Expiries: id("expiries"), Loads: id("loads"), Running: id("running") || 0, Per: id("per-expiry") || 0,
		Rate: total[0] ?? 0, Hits: total[1] ?? 0, Stale: total[2] ?? 0, Waits: total[3] ?? 0, Errors: total[6] ?? 0,
		Bars: document.querySelectorAll("#bars .on, #bars .off").length,
		Points: document.querySelector("#slow .curve")?.points.length ?? 0,
	};
})()`

func (b *browser) look() figures {
	b.t.Helper()
	return run(b, chromedp.Evaluate[figures](read))
}

// until looks until what it sees is as wanted.
func (b *browser) until(what string, wanted func(figures) bool) figures {
	b.t.Helper()
	limit := time.Now().Add(25 * time.Second)
	for {
		f := b.look()
		if wanted(f) {
			b.t.Logf("%s: %+v", what, f)
			return f
		}
		if time.Now().After(limit) {
			b.t.Fatalf("never seen: %s; last: %+v", what, f)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-b.ctx.Done():
			b.t.Fatal(errors.Join(errors.New(what), b.ctx.Err()))
		}
	}
}

// shoot saves pictures of the page, where somebody asked for them.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("LEASEHOLD_SCREENSHOTS")
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		png := run(b, chromedp.FullScreenshot(100))
		if err := os.WriteFile(filepath.Join(dir, name+"-"+scheme+".png"), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
}
