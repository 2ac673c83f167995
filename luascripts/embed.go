// Package luascripts holds the scripts that run inside Redis. Each file's head
// names its KEYS, its ARGV with units, its reply and its cost.
package luascripts

import (
	_ "embed"
	"strings"
)

//go:embed constants.lua
var constants string

//go:embed issue.lua
var issue string

//go:embed prelude.lua
var prelude string

// The sources of the scripts, complete and ready to load.
var (
	Enter    = withPrelude(enter)
	Leave    = withPrelude(leave)
	Ask      = withPrelude(ask)
	Renew    = renew
	GuardSet = guardSet

	FlightEnter      = withFlight(flightEnter)
	FlightAsk        = withFlight(flightAsk)
	FlightLeave      = withFlight(flightLeave)
	FlightRenew      = withFlight(flightRenew)
	FlightLand       = withFlight(flightLand)
	FlightInvalidate = withFlight(flightInvalidate)
	FlightInspect    = withFlight(flightInspect)
)

//go:embed enter.lua
var enter string

//go:embed leave.lua
var leave string

//go:embed ask.lua
var ask string

//go:embed renew.lua
var renew string

//go:embed guard_set.lua
var guardSet string

// withPrelude puts the shared verbs where the script asks for them: behind its
// fast path, which so does without the cost of making their closures; and in both
// the text that is shared, "-- include <name>".
func withPrelude(script string) string {
	script = strings.Replace(script, "-- include prelude\n", prelude, 1)
	return strings.NewReplacer("-- include constants\n", constants, "-- include issue\n", issue).Replace(script)
}

//go:embed flight.lua
var flight string

//go:embed flight_enter.lua
var flightEnter string

//go:embed flight_ask.lua
var flightAsk string

//go:embed flight_leave.lua
var flightLeave string

//go:embed flight_renew.lua
var flightRenew string

//go:embed flight_land.lua
var flightLand string

//go:embed flight_invalidate.lua
var flightInvalidate string

//go:embed flight_inspect.lua
var flightInspect string

// withFlight is withPrelude for the scripts of cached values.
func withFlight(script string) string {
	return strings.Replace(script, "-- include flight\n", flight, 1)
}
