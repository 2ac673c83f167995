// Mutations takes single guards out of the scripts and of the Go code, one at a
// time, and shows which test notices. A guard that no test misses is one that the
// next change may lose. The files stay as they are: the go command reads others.
//
//	go run ./mutations                 all of them
//	go run ./mutations -list           what there is
//	go run ./mutations -run 'land|S5'  some, by name
//	go run ./mutations -sample 5       some of the list sampled, by chance; with -seed always the same
//
// It is run in the folder robustness, and exits with 1 if a mutation survived or no longer applies.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	list := flag.Bool("list", false, "only list the mutations")
	run := flag.String("run", "", "only the mutations whose name matches this regular expression")
	sample := flag.Int("sample", 0, "only so many of them, chosen by chance; 0 = all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what chance begins with")
	flag.Parse()

	chosen, err := choose(*run, *sample, *seed)
	if err != nil {
		fail(err)
	}
	if *list {
		for _, m := range chosen {
			fmt.Printf("%-60s %-45s %s %s\n", m.name, m.file, m.packages, m.tests)
		}
		return
	}
	if *sample > 0 {
		fmt.Printf("%d of %d mutations, -seed %d\n\n", len(chosen), len(sampled), *seed)
	}
	caught, err := runAll(chosen)
	if err != nil {
		fail(err)
	}
	fmt.Printf("\n%d of %d caught\n", caught, len(chosen))
	if caught < len(chosen) {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "mutations:", err)
	os.Exit(1)
}

func choose(run string, sample int, seed uint64) ([]mutation, error) {
	re, err := regexp.Compile(run)
	if err != nil {
		return nil, err
	}
	from := mutations
	if sample > 0 {
		from = sampled
	}
	chosen := slices.DeleteFunc(slices.Clone(from), func(m mutation) bool { return !re.MatchString(m.name) })
	if sample > 0 && sample < len(chosen) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:sample]
	}
	if len(chosen) == 0 {
		return nil, errors.New("no mutation has such a name")
	}
	return chosen, nil
}

// runAll tries the mutations in turn.
func runAll(chosen []mutation) (caught int, err error) {
	root, err := filepath.Abs("..")
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "mutations-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	fmt.Println("| guard taken out | in | noticed by |\n|---|---|---|")
	for _, m := range chosen {
		by, err := "", m.testsExist(root)
		if err == nil {
			by, err = m.try(root, work)
		}
		switch {
		case err != nil:
			by = "**" + err.Error() + "**"
		case by == "":
			by = "**nothing**"
		default:
			caught++
		}
		fmt.Printf("| %s | `%s` | %s |\n", m.name, m.file, by)
	}
	return caught, nil
}

var (
	alternatives = regexp.MustCompile(`[^|()]*(?:\([^()]*\)[^|()]*)*`)
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// testsExist returns an error if something that m.tests names is in none of its packages: a
// test that was renamed or deleted notices nothing.
func (m mutation) testsExist(root string) error {
	var all []string
	for _, pkg := range strings.Fields(m.packages) {
		files, _ := filepath.Glob(filepath.Join(root, filepath.FromSlash(pkg), "*_test.go"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			for _, f := range testFunction.FindAllSubmatch(text, -1) {
				all = append(all, string(f[1]))
			}
		}
	}
	for _, one := range alternatives.FindAllString(m.tests, -1) {
		re, err := regexp.Compile(one)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(all, re.MatchString) {
			return fmt.Errorf("%s has no test %s", m.packages, one)
		}
	}
	return nil
}

// try runs the tests that should notice with the guard taken out: the go command reads a
// mutant in work instead of the file. It returns the first test that failed, "" where none did.
func (m mutation) try(root, work string) (by string, err error) {
	path := filepath.Join(root, filepath.FromSlash(m.file))
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		return "", fmt.Errorf("what is to be taken out is there %d times", n)
	}
	mutant, overlay := filepath.Join(work, "mutant"), filepath.Join(work, "overlay.json")
	replaced, err := json.Marshal(map[string]any{"Replace": map[string]string{path: mutant}})
	if err != nil {
		return "", err
	}
	err = errors.Join(os.WriteFile(overlay, replaced, 0o644), os.WriteFile(mutant, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, pkg := range strings.Fields(m.packages) {
		if by, err = m.test(ctx, root, overlay, pkg); by != "" || err != nil {
			return by, err
		}
	}
	return "", nil
}

// test runs the tests of one package on the mutant, and returns the first that failed, "" where none did.
func (m mutation) test(ctx context.Context, root, overlay, pkg string) (by string, err error) {
	args := []string{"test", "-count=1", "-timeout=90s", "-failfast"}
	if m.tests != "" {
		args = append(args, "-run", m.tests)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, ".")...)
	cmd.Dir = filepath.Join(root, filepath.FromSlash(pkg)) // it may be of a nested module
	// GOFLAGS, so that what the tests build has it, too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay, "LEASEHOLD_SEEDS="+strconv.Itoa(cmp.Or(m.seeds, 10)), "LEASEHOLD_ROUNDS=8", "LEASEHOLD_SHRINK=0", "LEASEHOLD_REQUIRE_SERVERS=")
	servers := filepath.Join(root, "none") // the embedded one will do, and is quicker
	if m.servers {
		if servers = os.Getenv("LEASEHOLD_SERVERS"); servers == "" {
			servers = filepath.Join(root, ".servers")
		}
	}
	cmd.Env = append(cmd.Env, "LEASEHOLD_SERVERS="+servers)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return "", nil
	case ctx.Err() != nil: // nobody noticed anything: it was stopped
		return "", fmt.Errorf("its tests were stopped: %w", ctx.Err())
	case !errors.As(err, &exit):
		return "", err
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return "", fmt.Errorf("it doesn't compile: %s", bytes.TrimSpace(out))
	}
	if failed := regexp.MustCompile(`--- FAIL: (\w+)`).FindSubmatch(out); failed != nil {
		return "`" + string(failed[1]) + "`", nil
	}
	if bytes.Contains(out, []byte("panic: test timed out")) || bytes.Contains(out, []byte("deadlock:")) {
		if hung := regexp.MustCompile(`running tests:\s+(\w+)`).FindSubmatch(out); hung != nil {
			return "`" + string(hung[1]) + "` (hangs)", nil
		}
		return "a test that hangs", nil
	}
	return "a test that ends the process", nil
}
