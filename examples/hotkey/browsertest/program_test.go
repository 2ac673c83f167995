package browsertest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// start builds and runs the program, and returns its page's address. At the end
// of the test the program is interrupted, and has to end well.
func start(t *testing.T, args ...string) (url string) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "hotkey")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = ".." // of the library's module
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	cmd := exec.Command(bin, append([]string{"-addr", "127.0.0.1:0"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	found, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			fmt.Println("  " + lines.Text())
			if url := regexp.MustCompile(`http://[^ ]+`).FindString(lines.Text()); url != "" {
				found <- url
			}
		}
		ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the interrupted program: %v", err)
			}
		case <-time.After(15 * time.Second):
			t.Error("the interrupted program goes on")
			_ = cmd.Process.Kill()
		}
	})
	select {
	case url := <-found:
		return url
	case err := <-ended:
		ended <- err
		t.Fatalf("the program ended before it had a page: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the program prints no address")
	}
	return ""
}
