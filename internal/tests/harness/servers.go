package harness

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/redistest"
)

// EachServerAtOnce runs fn on every installed server, all at the same time, however few processors there are.
// Start has the server: redistest.Shared, or one of the test's own.
func EachServerAtOnce(t *testing.T, start func(testing.TB, redistest.Version) *redistest.Server, fn func(t *testing.T, srv *redistest.Server)) {
	var all sync.WaitGroup
	for _, v := range redistest.NeedServers(t) {
		all.Go(func() { t.Run(v.Name, func(t *testing.T) { fn(t, start(t, v)) }) })
	}
	all.Wait()
}

// Soak is how long a test runs that gets better with time: LEASEHOLD_SOAK, where that is set.
func Soak(tb testing.TB, short time.Duration) time.Duration {
	return fromEnv(tb, "LEASEHOLD_SOAK", short, time.ParseDuration)
}

// Rounds is how often a test repeats itself: LEASEHOLD_ROUNDS, where that is set.
func Rounds(tb testing.TB, short int) int {
	return fromEnv(tb, "LEASEHOLD_ROUNDS", short, strconv.Atoi)
}

func fromEnv[T any](tb testing.TB, name string, otherwise T, parse func(string) (T, error)) T {
	tb.Helper()
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	v, err := parse(text)
	redistest.CheckNow(tb, err == nil, "%s: %v", name, err)
	return v
}

// keepFor is the KeepFor with which LEASEHOLD_KEEP_FOR makes the tests run; 0: as their Configs say.
var keepFor = func() time.Duration {
	text := os.Getenv("LEASEHOLD_KEEP_FOR")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		panic("LEASEHOLD_KEEP_FOR: " + err.Error())
	}
	return d
}()

// KeepFor is what a Config without a KeepFor, and with this TTL, gets for it.
func KeepFor(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return keepFor
	}
	return min(keepFor, ttl/2)
}

// Take is a try for what is free. While LEASEHOLD_KEEP_FOR is set it is repeated for the second in
// which a recall may be lost.
func Take[T any](try func() (T, error)) (T, error) {
	began := time.Now()
	for {
		v, err := try()
		if keepFor == 0 || !errors.Is(err, leasehold.ErrBusy) || time.Since(began) > time.Second {
			return v, err
		}
		time.Sleep(time.Millisecond)
	}
}

// strictOnly are the tests of locks and permits that differ by contract while LEASEHOLD_KEEP_FOR is set, and how.
var strictOnly = map[string]string{
	"TestDo":                         stays,
	"TestDoReleasesOnPanicAndGoexit": stays,
	"TestMutexDo":                    stays,
	"TestPermitsTakenTwice":          stays,
	"TestReleaseIsNilOnce":           stays,
	"TestRevokeErrors":               stays + ", and can be revoked there",
	"TestExtendAfterTheEnd":          stays,
	"TestInspect":                    stays,
	"TestTurnsOfAProcessShareALease": stays + ", and so does its last token",
	"TestCancellationStorm":          stays,
	"TestKeyOfALockBecomesAnother":   stays,
	"TestLateEnterAfterItsRetryWasReleasedTakesNothing": stays,
	"TestGrantThatComesTooLateIsAskedForAnew":           stays,
	"TestSilentRedisIsNoBusyTenant":                     stays,

	"TestRedisIsAway":                                   noCall,
	"TestReleaseBoundsItself":                           noCall,
	"TestReleaseOfWhatIsGoneIsErrLost":                  noCall,
	"TestRotatedCredentials":                            noCall,
	"TestTryLockWhoseGrantIsLateIsNotBusy":              noCall,
	"TestUnlockWhoseFirstReplyIsLostTellsOfARevocation": noCall,
	"TestRevokePassesAllPermitsOn":                      noCall + ", so it may not know yet of a revocation",
	"TestHookThatEndsItsCallerLeavesNoLock":             noCall + ", and meets no hook",
	"TestFenceSetByHand":                                noCall + ", and does not meet a fence that was set by hand",
	"TestClusterConfirmsAtTheNodeOfTheKey":              noCall + " that replicas confirm",

	"TestReleaseWhileRedisIsAway":                   alone,
	"TestGivingBackAndQueueingAgainIsOneRoundTrip":  alone,
	"TestGoroutineThatRepeatsALeaveIsEnded":         alone,
	"TestGoroutineThatGivesBackToQueueAgainIsEnded": alone,
	"TestKeyNamesAreAsDocumentedAndExpire":          register,
	"TestErrorsNameOperationFamilyAndKeyAndNoOwner": register,
	"TestBadCallsSendNothing":                       register + ", which is asked beside them",
	"TestObserverThatIsTooSlow":                     renewed,
	"TestObserverThatPanics":                        renewed,
	"TestInspectListsHoldersAndWaiters":             "Holder.Keeps is true",
	"TestKeptPermitsAreShown":                       "one of its handles keeps nothing",
	"TestUseOfACopyNamesTheMisuse":                  "a copy of a lease has the same turn",
	"TestGrantBeforeTheSubscriptionStands":          "what is kept uses the connection that the test counts on",
	"TestBrokenConnectionsFailNoCall":               "what is kept uses connections that the test breaks",
	"TestManyWaitersOfManyKeys":                     "what may be kept takes more of the heap",
	"TestNobodyElseWaitsForReplicas":                "what is kept asks by a script that the server learns first, in a WAIT of its own",
}

const (
	stays    = "what was given back stays in the process"
	noCall   = "an acquisition or a release makes no call"
	alone    = "while nobody else waits, the lease also serves turns after LocalFor"
	register = "there is a register of keepers, too"
	renewed  = "what is kept is renewed, which is an event"
)

// StrictOnly skips a test of this kind of resource that differs by contract while LEASEHOLD_KEEP_FOR is set.
func StrictOnly(tb testing.TB, kind string) {
	name, _, _ := strings.Cut(tb.Name(), "/")
	if why, differs := strictOnly[name]; differs && keepFor > 0 && (kind == Locks || kind == Permits) {
		tb.Skip("with KeepFor: " + why)
	}
}
