// Package cli is the commands: flags, help, exit codes. What they do is in the packages beside.
package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	signals "os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"golang.org/x/term"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/connect"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/run"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/text"
	"github.com/leasehold-go/leasehold/internal/keys"
)

type app struct {
	connect connect.Options
	prefix  string
	out     io.Writer
	err     io.Writer
}

// New makes the command with all that are below it.
func New(out, err io.Writer) *cobra.Command {
	a := &app{out: out, err: err}
	root := &cobra.Command{
		Use:   "leasehold",
		Short: "See and use the leases that a fleet keeps in Redis",
		Long: `leasehold shows which locks, permits and loads a fleet holds in Redis or Valkey,
says what the server's settings mean for them, and runs programs under a lock.

Redis is a URL in $REDIS_URL or --redis: redis://host:6379/0, rediss:// with
TLS, redis+cluster://host:7000?addr=other:7000 for a Cluster,
redis+sentinel://host:26379/0?master_name=main for Sentinel, or unix:///path. A
password need not be in it: see --redis-file and --redis-password-file. The user
and the password in a URL of Sentinel are the sentinels' own.`,
		Version:      version(),
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(err)
	a.connect.Flags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&a.prefix, "prefix", "", `what the keys in Redis begin with (default "leasehold")`)
	root.AddCommand(a.ls(), a.show(), a.doctor(), a.top(), a.serve(), a.setLimit(), a.revoke(), a.demo(), man(root))
	if run.Possible {
		root.AddCommand(a.run())
	}
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Example = "  leasehold help run"
	help.Args = func(_ *cobra.Command, args []string) error { // by itself it ends well, whatever it is asked for
		_, _, err := root.Find(args)
		return err
	}
	root.SetUsageTemplate(strings.NewReplacer(
		".LocalFlags.FlagUsages", ".LocalFlags.FlagUsagesWrapped 80", ".InheritedFlags.FlagUsages", ".InheritedFlags.FlagUsagesWrapped 80",
	).Replace(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	logging.Disable() // what matters of it is in errors
	return root
}

func usage(err error) error { return &run.Error{Code: run.CodeUsage, Err: err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

func (a *app) dial(ctx context.Context) (redis.UniversalClient, error) {
	if err := errors.Join(keys.Family{Prefix: a.prefix, Name: "any"}.Check()...); err != nil {
		return nil, usage(err)
	}
	rdb, err := a.connect.Client(ctx)
	if errors.Is(err, connect.ErrUsage) {
		return nil, usage(err)
	}
	return rdb, err
}

// firstWord bounds the first call of a command: it must not take a minute to say that Redis hangs.
const firstWord = 4 * time.Second

// with runs what a command does with Redis, once Redis has answered.
func (a *app) with(ctx context.Context, do func(rdb redis.UniversalClient) error) error {
	rdb, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer rdb.Close()
	first, cancel := context.WithTimeout(ctx, firstWord)
	defer cancel()
	if err := rdb.Time(first).Err(); err != nil && !redis.IsPermissionError(err) {
		if coded := withCode(err); coded != err {
			return coded
		}
		return &run.Error{Code: run.CodeUnreachable, Err: fmt.Errorf("redis can't be used: %w; check its URL (--redis, $REDIS_URL)", err)}
	}
	return withCode(do(rdb))
}

// dialAll makes the clients of the servers of a quorum, or, if urls is nil, that of the command. A flag with an empty
// value leaves no URL: it must not mean another server.
func (a *app) dialAll(ctx context.Context, urls []string) (all []redis.UniversalClient, err error) {
	if urls == nil {
		rdb, err := a.dial(ctx)
		return []redis.UniversalClient{rdb}, err
	}
	if len(urls) == 0 || slices.Contains(urls, "") {
		return nil, usagef("--quorum has an empty URL")
	}
	for _, url := range urls {
		one := a.connect
		one.URL = url
		rdb, _, err := one.Server() // a silent one must not hold up what the others decide
		if err != nil {
			for _, rdb := range all {
				_ = rdb.Close()
			}
			return nil, usage(err)
		}
		all = append(all, rdb)
	}
	return all, nil
}

// withCode gives an error of the network, and one of the user's rights, its exit code. The server refuses a
// command before it does anything; what it refuses within a script is another error.
func withCode(err error) error {
	switch {
	case err == nil, errors.As(err, new(*run.Error)):
	case redis.IsAuthError(err):
		return &run.Error{Code: run.CodeRefused, Err: fmt.Errorf("redis refuses the user name or the password: %w; see --redis-user and --redis-password-file", err)}
	case redis.IsPermissionError(err):
		return &run.Error{Code: run.CodeRefused, Err: fmt.Errorf("the user lacks a right: %w; leasehold doctor lists the rights that are missing", err)}
	case errors.As(err, new(net.Error)), errors.Is(err, io.EOF), errors.Is(err, context.DeadlineExceeded):
		return &run.Error{Code: run.CodeUnreachable, Err: fmt.Errorf("redis is out of reach: %w; check its address (--redis, $REDIS_URL) and the network", err)}
	}
	return err
}

// Execute runs the command that args name, and returns the exit code; where
// signal is not 0, the process is to die of it.
func Execute(ctx context.Context, args []string) (code, signal int) {
	// A reader that has gone is an error like a full disk. The signal of it would end the process without a word.
	signals.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	out := &output{file: os.Stdout}
	root := New(out, os.Stderr)
	root.SetArgs(idsBehindFlags(root, args))
	err := root.ExecuteContext(ctx)
	if out.err != nil {
		err = &run.Error{Code: run.CodeOutput, Err: fmt.Errorf("standard output can't be written, so that the answer is incomplete: %w", out.err)}
	}
	if err == nil {
		return 0, 0
	}
	e, ok := errors.AsType[*run.Error](err)
	if !ok {
		e = &run.Error{Code: 1, Err: err}
		if isUsage(err) {
			// A command that is similar is named on lines of its own.
			e = &run.Error{Code: run.CodeUsage, Err: fmt.Errorf("%s; see leasehold help", strings.NewReplacer("\n\n", ". ", "\n\t", " ", "\n", "").Replace(err.Error()))}
		}
	}
	if e.Err != nil {
		fmt.Fprintln(os.Stderr, message(e.Err, args))
	}
	return e.Code, e.Signal
}

// message is what is said of an error. The words of a server do nothing on a terminal.
func message(err error, args []string) string {
	said := strings.TrimPrefix(err.Error(), "leasehold: ")
	for _, arg := range args { // one in the wrong place is quoted, and may hold a password before '@' or behind '?'
		if _, behind, ok := strings.Cut(arg, "://"); ok && strings.ContainsAny(behind, "@?") {
			quoted := strconv.Quote(behind)
			said = strings.NewReplacer(quoted[1:len(quoted)-1], "…", behind, "…").Replace(said)
		}
	}
	return text.Prose("leasehold: " + said)
}

// output is standard output. It remembers that it could not be written, which most commands
// do not look at: on a full disk, or where the reader has gone.
type output struct {
	file *os.File
	err  error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.file.Write(p)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// width is the terminal's, 0 where there is none: then nothing is cut.
func (a *app) width() (w int) {
	if o, ok := a.out.(*output); ok {
		w, _, _ = term.GetSize(int(o.file.Fd()))
	}
	return w
}

func (a *app) json(v any) error {
	line, err := text.JSON(v)
	if err == nil {
		_, err = io.WriteString(a.out, line)
	}
	return err
}

// isUsage tells the errors that cobra makes of arguments it can't place.
func isUsage(err error) bool {
	known := []string{"unknown command", "unknown flag", "required flag", "invalid argument", "accepts ", "requires ", "if any flags in the group", "at least one of the flags"}
	return slices.ContainsFunc(known, func(begin string) bool { return strings.HasPrefix(err.Error(), begin) })
}

// version is that of the module, or of the commit that the command was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

func man(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "man FOLDER",
		Short: "Write the man pages into a folder",
		Long: `man writes a page for each command, leasehold.1, leasehold-run.1 and so on, into
a folder that it makes where there is none.`,
		Example: `  leasehold man /usr/local/share/man/man1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			// Of no date, so that the same version gives the same pages.
			date := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "LEASEHOLD", Section: "1", Source: "leasehold", Manual: "leasehold", Date: &date}, args[0])
		},
	}
}
