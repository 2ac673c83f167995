package main

// mode is how the server processes answer requests.
type mode string

const (
	off     mode = "off"      // GET, load where that finds nothing, SET
	on      mode = "on"       // singleflight
	onStale mode = "on+stale" // singleflight, which serves a stale value during a rebuild
)

// modes is all of them, in the order of the table.
var modes = []mode{off, on, onStale}

func (m mode) protected() bool { return m != off }

// name is what people read.
func (m mode) name() string {
	switch m {
	case off:
		return "protection off"
	case on:
		return "protection on"
	default:
		return "on, serving stale"
	}
}

// order says how to answer from now on. Each has a key of its own in the cache,
// so that each begins with a cold one, and what is counted in one epoch has
// nothing to do with another's.
type order struct {
	Epoch int  `json:"epoch"`
	Mode  mode `json:"mode"`
}

// source says where an answer is from.
type source string

const (
	fromCache source = "hit"
	fromStale source = "stale"
	fromOther source = "wait"   // it waited for another request's load
	fromLoad  source = "loaded" // it loaded by itself
)

// reply is a server process's answer to a client.
type reply struct {
	Epoch  int    `json:"epoch"`
	Load   int64  `json:"load"` // the number of the load that made the value
	Source source `json:"source"`
}
