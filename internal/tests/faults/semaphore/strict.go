package semaphore

// strictOnly are the tests that differ by contract if their handles have a KeepFor (LEASEHOLD_KEEP_FOR), and how.
var strictOnly = map[string]string{
	"TestCancellationStorm":                             stays,
	"TestHolderIsToldThatItsKeyIsGone":                  stays,
	"TestForeignKeyBesideALeaseHarmsNeither":            stays,
	"TestLateEnterAfterItsRetryWasReleasedTakesNothing": stays,
	"TestRotatedCredentials":                            noCall,
}

const (
	stays  = "what was given back stays in the process"
	noCall = "an acquisition or a release makes no call"
)
