package call

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"
)

// A Script is one constant script with the digest by which a server knows it.
type Script struct {
	name, source, sha string
	shaWord           any // sha, as an argument of a command
}

// scripts has all scripts that NewScript made, for ScriptName.
var scripts sync.Map // *Script

// NewScript makes a script of source; name is its name in tests and traces.
func NewScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	s := &Script{name: name, source: source, sha: sha, shaWord: sha}
	scripts.Store(s, nil)
	return s
}

// ScriptName returns the name of a script, given its digest or its text, for tests and traces.
// It returns "" for a script that NewScript did not make.
func ScriptName(word string) (name string) {
	scripts.Range(func(s, _ any) bool {
		if s := s.(*Script); word == s.sha || word == s.source {
			name = s.name
		}
		return name == ""
	})
	return name
}
