package call

import (
	"reflect"
	"runtime"
	"sync"
	"weak"

	"github.com/redis/go-redis/v9"
)

// links has the link of each go-redis client by its address. It keeps neither alive: a link
// lives as long as a Client of it, and the go-redis client as long as its link. So an address
// with a live link is not that of another client.
var links = struct {
	sync.Mutex
	byAddress map[uintptr]weak.Pointer[link]
}{byAddress: map[uintptr]weak.Pointer[link]{}}

// linkOf returns the link of rdb, and makes it if there is none. All handles of one go-redis
// client then share the queues of its servers, so that they do not compete for its connections
// without knowing of each other. A client that is no pointer has a link for each handle.
func linkOf(rdb redis.UniversalClient, create func() (*link, error)) (*link, error) {
	v := reflect.ValueOf(rdb)
	if v.Kind() != reflect.Pointer {
		return create()
	}
	address := v.Pointer()
	links.Lock()
	defer links.Unlock()
	if l := links.byAddress[address].Value(); l != nil && l.rdb == rdb {
		return l, nil
	}
	l, err := create()
	if err != nil {
		return nil, err
	}
	links.byAddress[address] = weak.Make(l)
	runtime.AddCleanup(l, forgetLink, address)
	return l, nil
}

// forgetLink removes the entry of a link that is no longer used, unless a new one took its
// place.
func forgetLink(address uintptr) {
	links.Lock()
	defer links.Unlock()
	if links.byAddress[address].Value() == nil {
		delete(links.byAddress, address)
	}
}
