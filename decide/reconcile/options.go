package reconcile

import (
	"fmt"
	"time"
)

// DefaultMaxItem limits key plus value of one item, in bytes.
const DefaultMaxItem = 512 << 10

// Options bound what replication may use. The zero value means the defaults.
type Options struct {
	// MaxItem limits key plus value of one item, in bytes. Default DefaultMaxItem. It must fit a frame of the link.
	MaxItem int
	// Chunk is the size at which a frame is full, in bytes; one larger item still travels alone. Default 192 KiB.
	Chunk int
	// Window is how many frames may be unanswered. Default 4.
	Window int
	// Resend is the wait for an answer before frames are sent again; it doubles with each try up to MaxResend.
	// Defaults 5 s and 80 s.
	Resend, MaxResend time.Duration
	// MaxSet limits what a receiver keeps of one set, orphans included, and of one transfer, in bytes of memory. Default 256 MiB.
	MaxSet int
	// Common finds the part of an item's value that values of other items have as well, from an offset up to another one; a source keeps
	// it once. It depends on key and value alone. nil, or no such part: the value is kept as it is.
	Common func(key string, value []byte) (from, to int)
}

func (o Options) withDefaults() Options {
	set := func(p *int, v int) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&o.MaxItem, DefaultMaxItem)
	set(&o.Chunk, 192<<10)
	set(&o.Window, 4)
	set(&o.MaxSet, 256<<20)
	if o.Resend <= 0 {
		o.Resend = 5 * time.Second
	}
	if o.MaxResend < o.Resend {
		o.MaxResend = max(80*time.Second, o.Resend)
	}
	return o
}

// TooLargeError says that an item can never travel.
type TooLargeError struct {
	Key         string
	Size, Limit int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("item %q has %d bytes; at most %d fit a frame", e.Key, e.Size, e.Limit)
}
