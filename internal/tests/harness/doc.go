// Package harness is what the tests of all three packages share: a fixture on each kind of server, a wire
// that can be cut, a key as it stands on its server, and how to wait for something. Only tests import it. It
// stands on internal/redistest, which has the servers and knows nothing of what is tested.
package harness
