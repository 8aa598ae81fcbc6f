//go:build linux

package tunnel

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
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

// TestRekey renews keys many times under a stream that no datagram may be missing from: TCP would not notice one, so the
// counters are looked at. Between hosts that are far apart both begin the first session at once, and each later one is in use
// at one end long before the other end hears of that.
func TestRekey(t *testing.T) {
	for name, delay := range map[string]time.Duration{"near": 0, "far": 80 * time.Millisecond} {
		t.Run(name, func(t *testing.T) { rekey(t, delay) })
	}
}

func rekey(t *testing.T, delay time.Duration) {
	// No session ends during the test, and no path counts as broken, however long the datapaths wait for a processor.
	a, b := pair(t, false, timingVar+`={"RekeyAfter":600000000,"RejectAfter":600000000000,"Lost":600000000000}`)
	if delay > 0 {
		apart(a, b, delay)
	}
	peers(a, b, at("10.1.0.1:4500"), at("10.1.0.2:4500"))
	other := make(chan error, 1)
	go func() { other <- transfer(b, a, false, 1000) }()
	must(t, transfer(a, b, false, 1000))
	must(t, <-other)
	f := stream2(t, a, b, time.Millisecond)
	seen := map[time.Time]bool{}
	for len(seen) < 8 {
		f.more(100_000)
		seen[a.path().Handshake] = true
	}
	f.stop()
	arrived := func(from, to *station) bool {
		return from.status().Counters["tx"] == to.status().Counters["rx"]+to.overflowed()
	}
	defer func() {
		if t.Failed() {
			t.Logf("a: %v, and %d that its socket had no room for; b: %v, and %d", a.status().Counters, a.overflowed(), b.status().Counters,
				b.overflowed())
		}
	}()
	eventually(t, "all of a's datagrams at b", func() bool { return arrived(a, b) && arrived(b, a) })
	for _, s := range []*station{a, b} {
		for name, n := range s.status().Counters {
			if name == "drop-unknown" || name == "drop-forged" || name == "drop-no-session" || name == "drop-waiting-full" {
				t.Errorf("%s %d", name, n)
			}
		}
	}
	if x, y := a.began(), b.began(); min(x, y) > 1 || max(x, y) < 6 {
		t.Errorf("one end began %d sessions, the other one %d: not all but the first by the same", x, y)
	}
}

// began counts the sessions that a station began.
func (s *station) began() int {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, logFile))
	must(s.t, err)
	return bytes.Count(text, []byte("initiator=true"))
}

// TestLateConfirmation has the other end of a new session say nothing for almost as long as a session lives: it may have been
// held up with the answer, and it sends with the session as soon as it goes on.
func TestLateConfirmation(t *testing.T) {
	e := New(Options{})
	defer e.Close()
	id, err := newIdentity(Secret{8})
	must(t, err)
	them, err := newIdentity(Secret{16})
	must(t, err)
	must(t, e.call(func() {
		e.id = id
		p := &peer{id: 2, key: them.public, search: search{cands: map[pathKey]*candidate{}}}
		p.conf.Store(&Peer{ID: 2, Key: them.public})
		e.keys[them.public] = p
		m, _, err := them.initiate(id.public, 5, 1, true)
		must(t, err)
		m, _ = addMACs(m, id.public, nil)
		from := origin{addr: at("192.0.2.1:9")[0]}
		e.initiation(from, m, e.now())
		if len(p.sessions) != 1 {
			t.Errorf("%d sessions", len(p.sessions))
			return
		}
		s := p.sessions[0]
		e.renew(p, s.made+e.timing.RejectAfter)
		if (*e.sessions.Load())[s.local] != s {
			t.Error("the session was forgotten")
			return
		}
		e.confirm(s, from)
		if p.send.Load() != s {
			t.Error("the session is not used")
		}
		e.renew(p, s.made+e.timing.RejectAfter+1)
		if len(p.sessions) != 0 || len(*e.sessions.Load()) != 0 || p.send.Load() != nil {
			t.Error("the session outlives its time")
		}
	}))
}

// TestOneEndRenews asks both ends of a session for the next one, whichever began it, or both, as when two handshakes cross.
func TestOneEndRenews(t *testing.T) {
	const low, high = 0, 1
	timing := Timing{}.filled()
	begins := func(end int, initiator bool, age time.Duration) (began bool) {
		e := New(Options{})
		defer e.Close()
		ids := [2]identity{}
		for i := range ids {
			id, err := newIdentity(Secret{byte(8 + 8*i)})
			must(t, err)
			ids[i] = id
		}
		slices.SortFunc(ids[:], func(x, y identity) int { return bytes.Compare(x.public[:], y.public[:]) })
		must(t, e.call(func() {
			now := time.Hour
			s := &session{local: 1, initiator: initiator, made: now - age}
			s.confirmed.Store(true)
			p := &peer{id: 2, key: ids[1-end].public, search: search{cands: map[pathKey]*candidate{}}, sessions: []*session{s}}
			p.conf.Store(&Peer{})
			p.send.Store(s)
			p.dataRx.Store(int64(now))
			e.id = ids[end]
			e.renew(p, now)
			began = p.attempt != nil
		}))
		return began
	}
	for _, initiator := range []bool{true, false} {
		for _, c := range []struct {
			end   int
			age   time.Duration
			wants bool
		}{
			{low, timing.RekeyAfter, false},
			{low, timing.RekeyAfter + time.Second, true},
			{high, timing.RekeyAfter + time.Second, false},
			{high, timing.RejectAfter - time.Second, true}, // the other end has not
		} {
			if got := begins(c.end, initiator, c.age); got != c.wants {
				t.Errorf("end %d, initiator %v, after %v: begins %v", c.end, initiator, c.age, got)
			}
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
