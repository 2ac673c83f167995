package mutex

// strictOnly are the tests that differ by contract if their handles have a KeepFor (LEASEHOLD_KEEP_FOR), and how.
var strictOnly = map[string]string{
	"TestHookThatEndsItsCallerLeavesNoLock":     "an acquisition or a release makes no call, and meets no hook",
	"TestFenceSetByHand":                        "an acquisition makes no call, and does not meet a fence that was set by hand",
	"TestEnterThatAHookRepeatedLeavesNoPhantom": "what was given back stays in the process",
}
