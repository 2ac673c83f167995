package browsertest

import (
	"context"
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
	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-go/leasehold/internal/redistest"
)

func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("LEASEHOLD_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
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

// open opens address, and notes whatever the page complains about from then on.
func open(t *testing.T, address string) *browser {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)),
		chromedp.NoSandbox, // so that it starts as root, in a container
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.WindowSize(1280, 900),
	)
	ctx, cancel := context.WithTimeout(t.Context(), 180*time.Second)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits until it is gone, with its files
		cancel()
	})
	to := redistest.Must(url.Parse(address))(t)
	b := &browser{t: t, ctx: ctx, host: to.Host}
	redistest.WantErr(t, chromedp.Listen(ctx, b.note))
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
	redistest.Check(b.t, len(b.faults) <= 0, "the page's console and network:\n%s", strings.Join(b.faults, "\n"))
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	redistest.WantErr(b.t, chromedp.Do(b.ctx, steps...))
}

func ask[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	redistest.CheckNow(b.t, err == nil, "%s: %v", expression, err)
	return v
}

func (b *browser) until(what, expression string) {
	b.t.Helper()
	for limit := time.Now().Add(20 * time.Second); !ask[bool](b, expression); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(limit) {
			b.t.Fatalf("never seen: %s; the page says: %s", what, ask[string](b, "document.body.innerText"))
		}
	}
}

func (b *browser) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// shoot saves pictures of the page, where somebody asked for them.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("LEASEHOLD_SCREENSHOTS")
	if dir == "" {
		return
	}
	redistest.WantErr(b.t, os.MkdirAll(dir, 0o755))
	for _, scheme := range []string{"light", "dark"} {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		redistest.WantErr(b.t, err)
		time.Sleep(200 * time.Millisecond) // for the transition of colours
		png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		redistest.WantErr(b.t, err)
		redistest.WantErr(b.t, os.WriteFile(filepath.Join(dir, name+"-"+scheme+".png"), png, 0o644))
	}
}

const (
	enter  = kb.Enter
	escape = kb.Escape
	down   = kb.ArrowDown
)
