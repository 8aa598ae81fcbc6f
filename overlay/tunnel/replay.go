package tunnel

// windowBits is how far a datagram may come after later ones. It is large, because at 10 Gbit/s a path that reorders by a
// few milliseconds reorders by thousands.
const windowBits = 8192

const windowWords = windowBits/64 + 1 // one more, so that clearing ahead never clears what is still in the window

// window remembers which counters have been seen, so that none is taken twice. The zero value has seen none.
type window struct {
	next uint64 // one more than the highest counter seen
	bits [windowWords]uint64
}

// fresh says whether a counter has not been seen and is not too old to know.
func (w *window) fresh(c uint64) bool {
	if c >= w.next {
		return true
	}
	if w.next-c > windowBits {
		return false
	}
	return w.bits[c/64%windowWords]>>(c%64)&1 == 0
}

// mark takes a counter for which fresh holds.
func (w *window) mark(c uint64) {
	if c >= w.next {
		word, last := c/64, uint64(0)
		if w.next > 0 {
			last = (w.next - 1) / 64
		}
		for i := range min(word-last, windowWords) {
			w.bits[(word-i)%windowWords] = 0
		}
		w.next = c + 1
	}
	w.bits[c/64%windowWords] |= 1 << (c % 64)
}
