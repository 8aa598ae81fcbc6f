package testenv

// Unsupported is the reason of a test that this machine cannot run: Why says what is missing and where it comes from.
type Unsupported struct{ What, Why string }

func (e *Unsupported) Error() string { return "unsupported: " + e.What + ": " + e.Why }
