// Release lays the modules out as a module proxy would serve them, from the files that git
// knows: without the replace lines, and requiring each other at one version.
//
//	go run ./scripts/release v0.1.0 DIR
//
// scripts/rehearse.sh builds programs from that folder, as users would. A real release tags the
// same commits: v0.1.0, and for each nested module leaseholdotel/v0.1.0 and so on.
package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

const module = "github.com/leasehold-go/leasehold"

// released are the folders of the modules that users import or install.
var released = []string{
	"", "leaseholdotel", "cmd/leasehold",
	"integrations/certmagiclock", "integrations/gocronlock", "integrations/grpccap", "integrations/rivercap",
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: release VERSION DIR")
	}
	version, dir := os.Args[1], os.Args[2]
	files, err := exec.Command("git", "ls-files").Output()
	if err != nil {
		log.Fatal(err)
	}
	names := strings.Fields(string(files))
	for _, folder := range released {
		if err := release(folder, version, dir, names); err != nil {
			log.Fatalf("%s: %v", path.Join(module, folder), err)
		}
	}
}

// release writes the three files of a module at a version.
func release(folder, version, dir string, names []string) error {
	name := path.Join(module, folder)
	mod, err := releasedMod(filepath.Join(folder, "go.mod"), version)
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, file := range names {
		if !belongs(file, folder, names) {
			continue
		}
		text := mod
		if path.Base(file) != "go.mod" {
			if text, err = os.ReadFile(file); err != nil {
				return err
			}
		}
		f, err := w.Create(name + "@" + version + "/" + strings.TrimPrefix(file, withSlash(folder)))
		if err != nil {
			return err
		}
		if _, err := f.Write(text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	to := filepath.Join(dir, name, "@v")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for file, text := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": fmt.Appendf(nil, `{"Version":%q}`, version),
		version + ".mod":  mod,
		version + ".zip":  archive.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(to, file), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// releasedMod is a go.mod that requires the other modules at the version.
func releasedMod(file, version string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	text = regexp.MustCompile(`(?m)^replace `+module+`\S* => .*\n`).ReplaceAll(text, nil)
	text = regexp.MustCompile(`(`+module+`\S*) v0\.0\.0\b`).ReplaceAll(text, []byte("${1} "+version))
	if bytes.Contains(text, []byte("replace")) {
		return nil, fmt.Errorf("%s still replaces a module", file)
	}
	return text, nil
}

// belongs reports whether a file is of the module in folder, and of no other module below it.
func belongs(file, folder string, names []string) bool {
	if !strings.HasPrefix(file, withSlash(folder)) {
		return false
	}
	for _, other := range names {
		below := path.Dir(other)
		if path.Base(other) == "go.mod" && below != "." && below != folder &&
			strings.HasPrefix(below+"/", withSlash(folder)) && strings.HasPrefix(file, below+"/") {
			return false
		}
	}
	return true
}

func withSlash(folder string) string {
	if folder == "" {
		return ""
	}
	return folder + "/"
}
