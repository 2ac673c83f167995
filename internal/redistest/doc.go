// Package redistest gives the project's tests their servers and their faults: an embedded miniredis, every
// real server that scripts/servers.sh brought, a Cluster, a Sentinel set, a proxy that loses what a network
// can lose, and child processes that can be killed. Only tests import it.
//
// Most tests want [Each], which runs them on every kind of server, or, where
// they are the contract of a package, [Matrix]: on all that there is.
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		redistest.Each(t, func(t *testing.T, target redistest.Target) {
//			rdb := target.Client(t)
//			family := redistest.Name(t)
//			…
//		})
//	}
//
// The servers behind both are shared by all tests of a process. A test that
// flushes, configures, stops or kills one starts its own with [StartServer].
//
// Three environment variables are obeyed. LEASEHOLD_SERVERS names a folder of servers like the one that
// scripts/servers.sh fills. LEASEHOLD_REQUIRE_SERVERS=1 uses the servers that are installed, and fails tests
// that find none. Without either, tests that need a server are skipped; [UseServers] asks in code.
// LEASEHOLD_TEST_LOG=1 lets go-redis log.
package redistest
