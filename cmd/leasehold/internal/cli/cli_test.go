package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
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
	// A majority grants the lock; this server's vote may come after it.
	redistest.Eventually(t, "the third server's vote", func() bool {
		out, err := do(t, url, "ls")
		return err == nil && strings.Contains(out, "nightly")
	})
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
			redistest.AtMost(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 80, "%s: %s has %d columns", c.CommandPath(), line)
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
		redistest.AtLeast(t, len(ok(t, "", "", "completion", shell)), 1000, "%s: %d bytes", shell)
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
		ok(t, url, "Nothing is held", append(append([]string{"ls"}, certs...), args...)...)
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
	out, err := do(t, to, "ls")
	redistest.WantErr(t, err, redistest.Says("WRONGPASS"))
	redistest.Check(t, !strings.Contains(err.Error()+out, "wrong password:"), "with a wrong password: %v %s", err, out)
	t.Setenv("REDIS_TLS_CA", "")
	redistest.WantErr(t, redistest.ErrorOf(do(t, to, "ls")), redistest.Says("certificate")) // its authority is not known
}

// Names of any bytes come back from JSON as they are, and none acts on a terminal.
func TestNamesInJSONAreReversibleAndHarmless(t *testing.T) {
	rdb, url := mini(t)
	family := redistest.Name(t)
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: family, Label: "l\u009bl"}))(t)
	defer func() { _ = m.Close(t.Context()) }()
	names := map[string]bool{"a\xff": true, "a\xfe": true, "a\ufffd": true, "a\u009b2J": true, "a\u202eb": true, "a\x1b[2J": true, "a\U000e0001\u2028\x7f": true}
	for name := range names {
		redistest.Must(m.Lock(t.Context(), name))(t)
	}
	const raw = "\x1b\u009b\u202e\U000e0001\x7f"
	check := func(out string) (key string) {
		t.Helper()
		redistest.Check(t, !strings.ContainsAny(out, raw), "it acts on a terminal: %q", out)
		var x struct {
			Key   string
			Bytes []byte `json:"key_base64"`
		}
		redistest.WantErr(t, json.Unmarshal([]byte(out), &x))
		return cmp.Or(string(x.Bytes), x.Key)
	}
	out := ok(t, url, `a\x1b[2J…1/1`, "ls", "--family", family)
	redistest.Check(t, !strings.ContainsAny(out, raw), "it acts on a terminal: %q", out)
	out = ok(t, url, "", "ls", "--json", "--family", family)
	found := map[string]bool{}
	for line := range strings.Lines(out) {
		found[check(line)] = true
	}
	redistest.Check(t, len(found) == len(names), "%d of %d names are listed: %q", len(found), len(names), out)
	for name := range names {
		redistest.Check(t, found[name], "%q is not listed", name)
		redistest.Expect(t, check(ok(t, url, "", "show", "--json", "--mutex", family, "--key", name)), name, "show says %q")
	}
}

// Nor do the words of a server that answers all with an error.
func TestWordsOfAServerAreHarmless(t *testing.T) {
	server := redistest.Mini(t)
	server.SetError("ERR \x1b[2J\u202e C:\\")
	_, err := do(t, "redis://"+server.Addr(), "ls")
	redistest.CheckNow(t, err != nil, "ls of a server that only errs: no error")
	said := message(err, nil)
	redistest.Check(t, strings.Contains(said, `\x1b[2J\u202e C:\\`) && !strings.ContainsAny(said, "\x1b\u202e"), "%q", said)
	redistest.Expect(t, message(errors.New("a\n\"C:\\\\\""), nil), "leasehold: a\n\"C:\\\\\"", "%q")
}

// hold makes a lock that has been held for so long.
func hold(t *testing.T, rdb *redis.Client, key, member string, since time.Duration) {
	base := "leasehold:mtx:{" + key + "}:"
	rdb.ZAdd(t.Context(), base+"holders", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMilli()), Member: member})
	rdb.Set(t.Context(), base+"fence", time.Now().Add(-since).UnixMicro(), time.Hour)
}

// ls and show say for how long a lease has been held, and point at one that may hang.
func TestLeaseThatIsHeldForLongIsFound(t *testing.T) {
	rdb, url := mini(t)
	for key, since := range map[string]time.Duration{
		"quick": 10 * time.Second, "slow": 4 * time.Minute, "hangs": 20 * time.Minute, "a": 2 * time.Second, "b": 2 * time.Second, "c": 2 * time.Second,
	} {
		hold(t, rdb, "jobs:"+key, "AbCdEfGh_-0123456789xy~host:1.1.1.30000.1", since)
	}
	out := ok(t, url, "USUAL…hangs…20m0… !…slow…quick", "ls", "--sort", "held")
	// Of quick, and what is usual of each.
	redistest.Check(t, strings.Count(out, " !") == 1 && strings.Count(out, "  10s") == 7, "by the time held:\n%s", out)
	out = ok(t, url, "hangs…slow", "ls", "--held-longer", "3m")
	redistest.Check(t, !strings.Contains(out, "quick"), "longer than 3m:\n%s", out)
	ok(t, url, "usually held for 10s… !", "show", "--mutex", "jobs", "--key", "hangs")
}

// ls and show say which leases may be idle, because their process keeps them. Such a lease may have
// served many callers, so nothing is concluded from how long it has been held.
func TestLeaseThatMayBeIdleIsMarked(t *testing.T) {
	rdb, url := mini(t)
	open := func(label string, keepFor time.Duration) *semaphore.Semaphore {
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 3, TTL: 20 * time.Second, KeepFor: keepFor, Label: label}))(t)
		t.Cleanup(func() { _ = s.Close(context.Background()) })
		return s
	}
	keeper, strict := open("keeper", 10*time.Second), open("strict", 0)
	redistest.WantErr(t, redistest.Must(keeper.Acquire(t.Context(), "acme"))(t).Release())
	defer redistest.Must(strict.Acquire(t.Context(), "acme"))(t).Release()
	defer redistest.Must(strict.Acquire(t.Context(), "globex"))(t).Release()
	out := ok(t, url, "acme…2/3…may be idle\n", "ls")
	out += ok(t, url, "2 of 3 in use…keeper (may be idle)", "show", "--semaphore", "exports", "--key", "acme")
	redistest.Check(t, strings.Count(out, "may be idle") == 2, "more is marked than what is kept:\n%s", out)
	out = ok(t, url, `"key":"acme"…"keeps":true`, "ls", "--json", "acme")
	out += ok(t, url, `"label":"keeper"…"keeps":true`, "show", "--semaphore", "exports", "--key", "acme", "--json")
	out += ok(t, url, "", "ls", "--json", "globex")
	redistest.Check(t, strings.Count(out, "keeps") == 2, "more is marked than what is kept:\n%s", out)
	for _, key := range []string{"a", "b", "c", "d", "e"} { // held for longer than ten TTLs
		hold(t, rdb, "busy:"+key, "AbCdEfGh_-0123456789xy^~host:1.1.1.5000.1", time.Hour)
	}
	out = ok(t, url, "1h00m…may be idle", "ls", "--family", "busy")
	redistest.Check(t, !strings.Contains(out, "!"), "a lease that is kept is said to hang:\n%s", out)
	out = ok(t, url, "1h00m", "show", "--mutex", "busy", "--key", "a")
	redistest.Check(t, !strings.Contains(out, "!") && !strings.Contains(out, "usually"), "a lease that is kept is said to hang, or its time to be usual:\n%s", out)
}

// A run that got no lock says how to find its holder, whatever its key, and below another prefix.
func TestConflictSaysHowToFindTheHolder(t *testing.T) {
	rdb, url := mini(t)
	m := redistest.Must(mutex.New(rdb, mutex.Config{Name: "jobs", Prefix: "demo"}))(t)
	for key, quoted := range map[string]string{"a b": "'a b'", "\x1b'": `$'\x1b\''`} {
		defer redistest.Must(m.TryLock(t.Context(), key))(t).Unlock()
		_, err := do(t, url, "run", "--prefix", "demo", "--mutex", "jobs", "--key", key, "--wait", "0", "--", "true")
		redistest.CheckNow(t, err != nil, "%q is not taken", key)
		said, want := message(err, nil), "leasehold show --prefix demo --mutex jobs --key "+quoted+" names its holder"
		redistest.Check(t, strings.HasSuffix(said, want), "it says %q; want %q", said, want)
	}
}

// A key that could not be read may have a lease that hangs: a search for one must not leave it out.
func TestKeyThatCannotBeReadMayHang(t *testing.T) {
	rdb, url := mini(t)
	redistest.WantErr(t, rdb.Set(t.Context(), "leasehold:mtx:{jobs:backup}:holders", "of another type", 0).Err())
	ok(t, url, "backup…?…WRONGTYPE", "ls", "--held-longer", "5m")
}

// Nothing can be below such a prefix: that is a mistake in the arguments, of each command.
func TestPrefixThatNoConfigHasIsRefused(t *testing.T) {
	_, url := mini(t)
	for _, command := range []string{"demo", "ls"} {
		refused(t, url, "no braces", command, "--prefix", "{x}")
	}
}

// A tenant's line is told from that of a key of the same name without a total.
func TestLinesOfAFamilyWithATotalSaySo(t *testing.T) {
	rdb, url := mini(t)
	for _, total := range []int{0, 2} {
		s := redistest.Must(semaphore.New(rdb, semaphore.Config{Name: "exports", Limit: 1, Total: total}))(t)
		defer redistest.Must(s.TryAcquire(t.Context(), "acme"))(t).Release()
	}
	var with, of int
	for line := range strings.Lines(ok(t, url, "", "ls", "--json")) {
		var x struct {
			Key      string
			HasTotal bool
		}
		redistest.WantErr(t, json.Unmarshal([]byte(line), &x))
		if of++; x.HasTotal {
			with++
		}
	}
	redistest.Check(t, with == 2 && of == 3, "%d of %d lines are of a family with a total; want 2 of 3", with, of)
}

// Lines that lack a right are shown, and are no success.
func TestListThatLacksARight(t *testing.T) {
	s := redistest.StartServer(t, redistest.Newest(t))
	m := redistest.Must(mutex.New(s.Client(), mutex.Config{Name: "jobs"}))(t)
	defer redistest.Must(m.TryLock(t.Context(), "nightly"))(t).Unlock()
	redistest.WantErr(t, s.Client().ACLSetUser(t.Context(), "less", "reset", "on", ">secret", "~*", "&*", "+@all", "-zcount").Err())
	for _, args := range [][]string{{"ls"}, {"ls", "--json"}} {
		out, err := do(t, "redis://less:secret@"+s.Addr(), args...)
		e, coded := errors.AsType[*run.Error](err)
		redistest.Check(t, coded && e.Code == run.CodeRefused && strings.Contains(out, "nightly"), "%q: %v\n%s", args, err, out)
	}
}

func TestPortThatCannotBeIsRefused(t *testing.T) {
	_, url := mini(t)
	for _, listen := range []string{"127.0.0.1:99999", "127.0.0.1:-1", "127.0.0.1:nothing", "127.0.0.1"} {
		refused(t, url, "--listen", "serve", "--listen", listen)
	}
}

// A variable that is not set must not mean the server of $REDIS_URL, nor that the demo is to have one of its own.
func TestFlagWithoutAURLIsRefused(t *testing.T) {
	_, url := mini(t)
	for _, flag := range []string{"--redis=", "--redis-file="} {
		for _, args := range [][]string{{"ls"}, {"demo"}, {"set-limit", "--semaphore", "n", "--key", "k", "5"}, {"run", "--mutex", "n", "--key", "k"}} {
			args = append(args, flag)
			if args[0] == "run" {
				args = append(args, "--", "true")
			}
			refused(t, url, strings.Trim(flag, "=")+" is empty", args...)
		}
	}
}

// Help on a command that there is not is a mistake in the arguments.
func TestHelpOnNothingIsRefused(t *testing.T) {
	refused(t, "", "unknown command", "help", "nosuch")
	ok(t, "", "set-limit sets", "help", "set-limit")
}

// A demo that may do nothing says so. A fleet of it would fail without a word.
func TestDemoThatLacksARight(t *testing.T) {
	t.Parallel()
	s := redistest.StartServer(t, redistest.Newest(t))
	redistest.WantErr(t, s.Client().ACLSetUser(t.Context(), "less", "reset", "on", ">secret", "~*", "&*", "+@all", "-evalsha").Err())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	root := New(io.Discard, io.Discard)
	root.SetArgs([]string{"demo", "--redis", "redis://less:secret@" + s.Addr()})
	e, coded := errors.AsType[*run.Error](root.ExecuteContext(ctx))
	redistest.Check(t, coded && e.Code == run.CodeRefused && ctx.Err() == nil, "%v", e)
}
