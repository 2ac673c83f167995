package text

import (
	"strconv"
	"time"

	"github.com/leasehold-go/leasehold/internal/keys"
	"github.com/leasehold-go/leasehold/internal/listing"
)

// Name is how a key is shown: of a resource without one, what it is.
func Name(r listing.Resource) string {
	switch {
	case r.Whole:
		return "(loads)"
	case r.HasTotal && r.Key == "":
		return "(total)"
	}
	return Safe(r.Key)
}

// InUse is "3/5", or what there is instead of permits.
func InUse(u listing.Use) string {
	switch {
	case u.Err != nil:
		return "?"
	case u.Kind == keys.Guard, u.Kind == keys.Flight && !u.Whole && u.InUse == 0:
		return "-"
	case u.Kind == keys.Flight && !u.Whole:
		return "loading"
	case u.Limit > 0:
		return strconv.Itoa(u.InUse) + "/" + strconv.Itoa(u.Limit)
	}
	return strconv.Itoa(u.InUse)
}

// Held is for how long a lease has been held; overlong marks one whose holder may hang.
func Held(d time.Duration, overlong bool) string {
	switch {
	case d <= 0:
		return ""
	case overlong:
		return Duration(d) + " !"
	}
	return Duration(d)
}
