package api

import "testing"

// However many streams one user opens, others have some.
func TestStreamsAreShared(t *testing.T) {
	l := newLimits(Limits{Streams: 100, AllStreams: 16})
	var release []func()
	open := func(user string) (n int) {
		for {
			end, err := l.stream(user)
			if err != nil {
				return n
			}
			release = append(release, end)
			n++
		}
	}
	if a, b, c := open("a"), open("b"), open("c"); a != 8 || b != 4 || c != 2 {
		t.Errorf("of 16 streams one has %d, another %d, a third %d", a, b, c)
	}
	for _, end := range release {
		end()
	}
	if l.open != 0 || len(l.streams) != 0 {
		t.Errorf("%d are open: %v", l.open, l.streams)
	}
}
