package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/mutex"
	"github.com/leasehold-go/leasehold/semaphore"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func do(t *testing.T, url string, args ...string) (string, error) {
	t.Helper()
	t.Setenv("REDIS_URL", url)
	var out bytes.Buffer
	root := New(&out, &out)
	root.SetArgs(idsBehindFlags(root, args))
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// ok runs a command that succeeds, and says some words in their order.
func ok(t *testing.T, url, says string, args ...string) (out string) {
	t.Helper()
	out, err := do(t, url, args...)
	rest, found := out, true
	for word := range strings.SplitSeq(says, "…") {
		if _, rest, found = strings.Cut(rest, word); !found {
			break
		}
	}
	redistest.CheckNow(t, err == nil && found, "%q does not say %q: %v\n%s", args, says, err, out)
	return out
}

func mini(t *testing.T) (rdb *redis.Client, url string) {
	rdb = redistest.MiniClient(t)
	return rdb, "redis://" + rdb.Options().Addr
}

func TestLsAndShowOnAllDeployments(t *testing.T) {
	redistest.Matrix(t, func(t *testing.T, target redistest.Target) {
		rdb, to := target.Client(t), target.URL(t)
		family := redistest.Name(t)
		sem := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: family, Limit: 3}))(t)
		defer sem.Close(t.Context())
		mtx := redistest.Must(mutex.New(rdb, mutex.Config{Name: family}))(t)
		defer mtx.Close(t.Context())
		lock := redistest.Must(mtx.Lock(t.Context(), "nightly"))(t)
		defer lock.Unlock()
		const hostile = "a\x1b[2J<b>"
		for i := range 12 {
			l := redistest.Must(sem.AcquireN(t.Context(), fmt.Sprint(hostile, i), 2))(t)
			defer l.Release()
		}
		if out := ok(t, to, `a\x1b[2J<b>7…2/3`, "ls", "--family", family); strings.Count(out, "\n") != 14 || strings.Contains(out, "\x1b") {
			t.Fatalf("ls:\n%s", out)
		}
		out := ok(t, to, "", "ls", "--json", "--family", family, "--kind", "semaphore", "b>1")
		redistest.CheckNow(t, strings.Count(out, "\n") == 3, "ls --json:\n%s", out)
		for line := range strings.Lines(out) {
			var x struct {
				Key          string
				InUse, Limit int
			}
			if err := json.Unmarshal([]byte(line), &x); err != nil || x.InUse != 2 || x.Limit != 3 || !strings.HasPrefix(x.Key, hostile) {
				t.Errorf("a line is %s: %v", line, err)
			}
		}
		ok(t, to, "1 of 1 in use…"+lock.ID(), "show", "--mutex", family, "--key", "nightly")
		ok(t, to, `"inUse":2,…"holders":[{"id":"…"waiters":[]`, "show", "--semaphore", family, "--key", hostile+"3", "--json")
		ok(t, to, "0 of 1 in use", "show", "--mutex", family, "--key", "nobody's")
	})
}

// Each server of a quorum shows its locks. None of them alone takes one away.
func TestLockOfAQuorumIsShown(t *testing.T) {
	var rdbs []redis.UniversalClient
	var url string
	for range 3 {
		rdb, of := mini(t)
		rdbs, url = append(rdbs, rdb), of
	}
	m := redistest.Must(mutex.NewQuorum(rdbs, mutex.Config{Name: "jobs"}))(t)
	defer m.Close(t.Context())
	l := redistest.Must(m.Lock(t.Context(), "nightly"))(t)
	defer l.Unlock()
	ok(t, url, "mutex…jobs…nightly…1/1…of a quorum", "ls", "--kind", "mutex")
	key := []string{"--mutex", "jobs", "--key", "nightly"}
	out := ok(t, url, "mutex jobs/nightly (of a quorum): 1 of 1 in use", append([]string{"show"}, key...)...)
	id := strings.Fields(out[strings.Index(out, "EXPIRES IN"):])[2]
	refused(t, url, "several servers", append([]string{"revoke", "--reason", "r", id}, key...)...)
	redistest.NoError(t, l.Context().Err())
}

func commands(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, commands(sub)...)
	}
	return all
}

// Prose fits 80 columns, and each command has an example.
func TestHelpFitsTheTerminal(t *testing.T) {
	for _, c := range commands(New(os.Stdout, os.Stderr)) {
		for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		redistest.Check(t, !c.HasParent() || c.Long != "" && c.Example != "",
			"%s has no help or no example", c.CommandPath())
	}
}

func TestManPagesAndCompletionAreWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	ok(t, "", "", "man", dir)
	page := string(redistest.Must(os.ReadFile(filepath.Join(dir, "leasehold-run.1")))(t))
	redistest.Check(t, strings.Contains(page, "conflict") && strings.Contains(page, "124"), "the page of run:\n%s", page)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		out := ok(t, "", "", "completion", shell)
		redistest.Check(t, len(out) >= 1000, "%s: %d bytes", shell, len(out))
	}
}

func TestTLSAndPasswordByFile(t *testing.T) {
	dir := t.TempDir()
	redistest.Must(redistest.WriteCertificate(dir))(t)
	cert, key := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	redistest.StartServer(t, redistest.Newest(t), "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-ca-cert-file", cert, "--tls-auth-clients", "yes", "--requirepass", "se cret")
	to := "rediss://127.0.0.1:" + port
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "secret")
		redistest.WantErr(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	certs := []string{"--tls-ca", cert, "--tls-cert", cert, "--tls-key", key}
	good := func(url string, args ...string) {
		t.Helper()
		if out, err := do(t, url, append(append([]string{"ls"}, certs...), args...)...); err != nil || !strings.HasPrefix(out, "Nothing is held") {
			t.Errorf("ls %q: %v %s", args, err, out)
		}
	}
	good(to, "--redis-password-file", file("se cret\n"))
	good("", "--redis-file", file("rediss://:se%20cret@127.0.0.1:"+port+"\n"))
	t.Setenv("REDIS_PASSWORD", "se cret")
	good(to)
	t.Setenv("REDIS_TLS_CA", cert)
	t.Setenv("REDIS_TLS_CERT", cert)
	t.Setenv("REDIS_TLS_KEY", key)
	certs = nil
	good(to)
	t.Setenv("REDIS_PASSWORD", "wrong")
	if out, err := do(t, to, "ls"); err == nil || strings.Contains(err.Error()+out, "wrong password:") || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("with a wrong password: %v %s", err, out)
	}
	t.Setenv("REDIS_TLS_CA", "")
	if _, err := do(t, to, "ls"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without the authority: %v", err)
	}
}
