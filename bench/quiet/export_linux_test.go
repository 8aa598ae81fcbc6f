package quiet

// What tests of packages that measure need of these.
var (
	Alone    = alone
	Stranger = stranger
	FIFO     = fifo
	WaitFor  = waitFor
)
