// Package printed keeps the beginning of what somebody else's program prints.
package printed

import "fmt"

// Head keeps up to Max bytes of what is written to it. It has no way in but Write: a bytes.Buffer inside would be filled by its
// ReadFrom, which io.Copy, and so package exec, prefers. It is used by one goroutine at a time.
type Head struct {
	Max  int
	Stop bool // what is more is refused, which ends whoever prints; else it is dropped
	kept []byte
	over bool
}

// Write keeps as much of p as there is room for. The error is only of a Head that stops.
func (b *Head) Write(p []byte) (int, error) {
	n := min(len(p), b.Max-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	if n == len(p) {
		return n, nil
	}
	if b.over = true; b.Stop {
		return n, fmt.Errorf("more than %d bytes were printed", b.Max)
	}
	return len(p), nil
}

// Over reports whether there was more than the buffer keeps.
func (b *Head) Over() bool { return b.over }

// Bytes gives what was kept.
func (b *Head) Bytes() []byte { return b.kept }

// String gives what was kept.
func (b *Head) String() string { return string(b.kept) }
