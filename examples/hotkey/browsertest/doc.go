// Package browsertest tests the page of examples/hotkey in a headless Chromium.
// It is a module of its own, so that the library's module needs no browser
// driver.
//
//	go -C examples/hotkey/browsertest test -count=1 -timeout 120s ./...
//
// Without a Chromium it skips, or fails where LEASEHOLD_REQUIRE_BROWSER=1.
// LEASEHOLD_CHROMIUM names one that is not in the PATH. LEASEHOLD_SCREENSHOTS is a
// directory for pictures of what the page looked like.
package browsertest
