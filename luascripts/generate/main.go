// Generate writes the complete scripts: each script of the package luascripts with
// the pieces that it includes. It is run by go generate in the folder luascripts.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := generate(".", "complete"); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// generate expands the scripts of the folder from into the folder to, which holds
// nothing else afterwards.
func generate(from, to string) error {
	scripts, err := expandAll(os.DirFS(from))
	if err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	for name, text := range scripts {
		path := filepath.Join(to, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
