// Print shows a whole script with the numbers of its lines, as errors of the server name them.
// Its argument is the script's name (permits/enter) or the beginning of its SHA1. Without one it
// prints the SHA1 of each script, as the file luascripts/hashes has them.
package main

import (
	"crypto/sha1"
	"fmt"
	"os"
	"strings"

	"github.com/leasehold-go/leasehold/luascripts"
)

func main() {
	found := false
	for _, name := range luascripts.Names() {
		text := luascripts.Whole(name)
		hash := fmt.Sprintf("%x", sha1.Sum([]byte(text)))
		switch {
		case len(os.Args) < 2:
			fmt.Println(hash, name)
		case name == os.Args[1] || strings.HasPrefix(hash, os.Args[1]):
			for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
				fmt.Printf("%4d  %s\n", i+1, line)
			}
		default:
			continue
		}
		found = true
	}
	if !found {
		fmt.Fprintln(os.Stderr, "print: there is no script", os.Args[1])
		os.Exit(1)
	}
}
