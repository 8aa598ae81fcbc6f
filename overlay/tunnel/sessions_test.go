//go:build linux

package tunnel

import "testing"

// Attempts that were repeated do not push out sessions that are in use.
func TestOldestSession(t *testing.T) {
	newSession := func(confirmed bool) *session {
		s := &session{}
		s.confirmed.Store(confirmed)
		return s
	}
	used, idle, sends, tried := newSession(true), newSession(true), newSession(true), newSession(false)
	for _, c := range []struct {
		name string
		list []*session
		want int
	}{
		{"the oldest that is used", []*session{newSession(false), sends, idle, used}, 3},
		{"not the one that sends", []*session{newSession(false), used, idle, sends}, 2},
		{"an attempt that came to nothing", []*session{newSession(false), tried, used, idle, sends}, 1},
		{"the older of two", []*session{newSession(false), tried, tried, used, sends}, 2},
		{"nothing but new ones", []*session{newSession(false), newSession(false)}, 1},
	} {
		p := &peer{sessions: c.list}
		p.send.Store(sends)
		if got := p.oldest(); got != c.want {
			t.Errorf("%s: session %d is forgotten, not %d", c.name, got, c.want)
		}
	}
}
