//go:build linux

package tunnel

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

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

// overflowed counts the datagrams that the kernel dropped because the process that was to read them did not come to it.
func (s *station) overflowed() (n int64) {
	s.t.Helper()
	for _, file := range []string{"snmp", "snmp6"} {
		var text []byte
		must(s.t, s.in(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/" + file); return err }))
		n += int64(field(string(text), "Udp", "RcvbufErrors") + field(string(text), "Udp6", "RcvbufErrors"))
	}
	return n
}

// field finds a counter in the text of /proc/net/snmp, which has a line of names above one of numbers, or snmp6, which has one a line.
func field(text, protocol, name string) int {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 2 && f[0] == protocol+name:
			n, _ := strconv.Atoi(f[1])
			return n
		case len(f) < 2 || f[0] != protocol+":":
		case names == nil:
			names = f
		default:
			if i := slices.Index(names, name); i >= 0 && i < len(f) {
				n, _ := strconv.Atoi(f[i])
				return n
			}
		}
	}
	return 0
}
