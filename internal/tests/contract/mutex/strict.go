package mutex

// strictOnly are the tests that differ by contract if their handles have a KeepFor (LEASEHOLD_KEEP_FOR), and how.
var strictOnly = map[string]string{
	"TestExtendAfterTheEnd":                             stays,
	"TestInspect":                                       stays,
	"TestMutexDo":                                       stays,
	"TestTurnsOfAProcessShareALease":                    stays + ", and so does its last token",
	"TestRevokedLateGrantDoesNotEnterAgain":             noCall,
	"TestTryLockWhoseGrantIsLateIsNotBusy":              noCall,
	"TestUnlockWhoseFirstReplyIsLostTellsOfARevocation": noCall,
	"TestGivingBackAndQueueingAgainIsOneRoundTrip":      alone,
	"TestGoroutineThatRepeatsALeaveIsEnded":             alone,
	"TestObserverThatIsTooSlow":                         "what is kept is renewed, which is an event",
	"TestObserverThatPanics":                            "what is kept is renewed, which is an event",
}

const (
	stays  = "what was given back stays in the process"
	noCall = "an acquisition or a release makes no call"
	alone  = "while nobody else waits, the lease also serves turns after LocalFor"
)
