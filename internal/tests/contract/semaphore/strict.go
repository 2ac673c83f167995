package semaphore

// strictOnly are the tests that differ by contract if their handles have a KeepFor (LEASEHOLD_KEEP_FOR), and how.
var strictOnly = map[string]string{
	"TestDo":                                        stays,
	"TestDoReleasesOnPanicAndGoexit":                stays,
	"TestTwoTTLsOnOneKey":                           stays,
	"TestPermitsTakenTwice":                         stays,
	"TestReleaseIsNilOnce":                          stays,
	"TestRevokeErrors":                              stays + ", and can be revoked there",
	"TestRedisIsAway":                               noCall,
	"TestReleaseBoundsItself":                       noCall,
	"TestReleaseOfWhatIsGoneIsErrLost":              noCall,
	"TestRevokePassesAllPermitsOn":                  noCall + ", so it may not know yet of a revocation",
	"TestTryEndsWhenRedisGoesAway":                  noCall,
	"TestKeyNamesAreAsDocumentedAndExpire":          register,
	"TestInspectListsHoldersAndWaiters":             "Holder.Keeps is true",
	"TestKeptPermitsAreShown":                       "one of its handles keeps nothing",
	"TestUseOfACopyNamesTheMisuse":                  "a copy of a lease has the same turn",
	"TestGrantBeforeTheSubscriptionStands":          "what is kept uses the connection that the test counts on",
	"TestErrorsNameOperationFamilyAndKeyAndNoOwner": register,
	"TestReleaseWhileRedisIsAway":                   "while nobody else waits, a lease also serves turns after LocalFor",
}

const (
	stays    = "what was given back stays in the process"
	noCall   = "an acquisition or a release makes no call"
	leaves   = "a try that awaits kept permits leaves the queue in the background"
	register = "there is a register of keepers, too"
)
