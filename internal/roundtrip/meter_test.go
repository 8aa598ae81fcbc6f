package roundtrip

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// prober starts one on loopback.
func prober(t *testing.T, dir string) (r *Meter, found chan struct{}, stop func()) {
	t.Helper()
	found = make(chan struct{}, 1)
	r, err := New("127.0.0.1:0", time.Millisecond, filepath.Join(dir, "coordinate.json"), slog.New(slog.DiscardHandler), func() { found <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return r, found, stop
}

func TestWorkersMeasureEachOther(t *testing.T) {
	dir := t.TempDir()
	a, found, stop := prober(t, dir)
	b, _, _ := prober(t, t.TempDir())
	if a.Place() != nil {
		t.Error("it has a place before it was told anything")
	}
	a.SetPeers(wire.Peers{KeyID: 1, Key: keyA})
	if a.Place() == nil {
		t.Error("a worker alone is nowhere")
	}
	b.SetPeers(wire.Peers{KeyID: 1, Key: keyA})
	a.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{b.Address("", "127.0.0.1")}})
	if a.Place() != nil {
		t.Error("a place without a round trip")
	}
	select {
	case <-found:
	case <-time.After(30 * time.Second):
		t.Fatal("no place was found")
	}
	if c := a.Place(); c == nil || !c.Valid() {
		t.Fatalf("%+v", c)
	}
	stop()
	if _, err := os.Stat(filepath.Join(dir, "coordinate.json")); err != nil {
		t.Error(err)
	}
	again, _, _ := prober(t, dir)
	again.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{b.Address("", "127.0.0.1")}})
	if again.Place() == nil {
		t.Error("an agent that starts again has forgotten its place")
	}
}

// asker is somebody with a socket.
type asker struct {
	*net.UDPConn
	t *testing.T
}

func newAsker(t *testing.T) asker {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return asker{c, t}
}

// answers sends datagrams, the last of which will be answered, and counts all answers up to that one.
func (a asker) answers(to string, list ...[]byte) (n int) {
	a.t.Helper()
	addr := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to))
	for _, b := range list {
		if _, err := a.WriteToUDP(b, addr); err != nil {
			a.t.Fatal(err)
		}
	}
	want, err := parseDatagram(list[len(list)-1], 1, keyA)
	if err != nil {
		a.t.Fatal(err)
	}
	buf := make([]byte, 2000)
	a.SetReadDeadline(time.Now().Add(30 * time.Second))
	for {
		k, _, err := a.ReadFromUDP(buf)
		if err != nil {
			a.t.Fatal(err)
		}
		n++
		if k > len(list[len(list)-1]) {
			a.t.Error("the answer is longer than the question")
		}
		if d, err := parseDatagram(buf[:k], 1, keyA); err == nil && d.kind == answer && d.nonce == want.nonce {
			return n
		}
	}
}

func TestOnlyQuestionsOfWorkersAreAnswered(t *testing.T) {
	r, _, _ := prober(t, t.TempDir())
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA})
	q := datagram{kind: question, keyID: 1, nonce: 1}
	good := q.append(nil, keyA)
	a := datagram{kind: answer, keyID: 1, nonce: 2}
	other := q
	other.keyID = 2
	n := newAsker(t).answers(r.Address("", "127.0.0.1"), q.append(nil, keyB), other.append(nil, keyA), good[:20], nil, make([]byte, 1400), append(good, 0), a.append(nil, keyA), flip(good, 20, 1), good)
	if n != 1 {
		t.Errorf("%d answers, want 1", n)
	}
}

func TestAnswersAreLimited(t *testing.T) {
	r, _, _ := prober(t, t.TempDir())
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA})
	from := netip.MustParseAddrPort(newAsker(t).LocalAddr().String())
	q := datagram{kind: question, keyID: 1, nonce: 1}
	now := time.Now()
	r.mu.Lock()
	r.limit.AllowN(now, answersPerSecond) // all of this second
	r.mu.Unlock()
	r.Take(now, q.append(nil, keyA), from)
	if left := r.limit.TokensAt(now); left > 1 || left < -1 {
		t.Errorf("%v answers are left", left)
	}
}

// What an answer must be to be believed.
func TestHostileAnswers(t *testing.T) {
	r, err := New("127.0.0.1:0", time.Hour, filepath.Join(t.TempDir(), "x"), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.conn.Close()
	peer := newAsker(t)
	addr := netip.MustParseAddrPort(peer.LocalAddr().String())
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{addr.String()}})
	ask := func() (nonce uint64) {
		t.Helper()
		r.ask(time.Now())
		buf := make([]byte, 100)
		n, _, err := peer.ReadFromUDP(buf)
		if err != nil {
			t.Fatal(err)
		}
		q, err := parseDatagram(buf[:n], 1, keyA)
		if err != nil || q.kind != question {
			t.Fatal(q, err)
		}
		r.peers[0].rest, r.peers[0].silent = time.Time{}, 0
		return q.nonce
	}
	reply := func(nonce uint64, at spec.Coordinate, key []byte, from netip.AddrPort) bool {
		before := r.viv.Coordinate()
		d := datagram{kind: answer, keyID: 1, nonce: nonce, at: at}
		r.Take(time.Now(), d.append(nil, key), from)
		return r.viv.Coordinate() != before
	}
	good := spec.Coordinate{Vec: [3]float64{10}, Error: 0.5}
	nonce := ask()
	if reply(nonce, good, keyB, addr) {
		t.Error("an answer by another key was believed")
	}
	if reply(nonce+1, good, keyA, addr) {
		t.Error("an answer to no question was believed")
	}
	if reply(nonce, good, keyA, netip.AddrPortFrom(addr.Addr(), addr.Port()+1)) {
		t.Error("an answer from elsewhere was believed")
	}
	if !reply(nonce, good, keyA, addr) {
		t.Error("the answer was not believed")
	}
	if reply(nonce, good, keyA, addr) {
		t.Error("an answer was believed twice")
	}
	for _, at := range []spec.Coordinate{{Vec: [3]float64{math.NaN()}}, {Vec: [3]float64{math.Inf(1)}}, {Vec: [3]float64{1e30}}, {Vec: [3]float64{50_000}},
		{Height: math.Inf(1)}, {Height: -5}, {Error: math.NaN()}} {
		if reply(ask(), at, keyA, addr) {
			t.Errorf("%+v was believed", at)
		}
	}
	late := ask()
	r.ask(time.Now().Add(answerTime + time.Second))
	if reply(late, good, keyA, addr) {
		t.Error("a late answer was believed")
	}
	// A peer that is taken away is not believed any more, and its key not either.
	last := ask()
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{"127.0.0.1:9"}})
	if reply(last, good, keyA, addr) {
		t.Error("somebody who is no peer was believed")
	}
}

// A peer that does not answer is left alone for longer and longer.
func TestSilentPeersAreLeftAlone(t *testing.T) {
	r, err := New("127.0.0.1:0", 8*time.Second, filepath.Join(t.TempDir(), "x"), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.conn.Close()
	peer := newAsker(t)
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{peer.LocalAddr().String()}})
	r.eager = 0
	asked := 0
	for now, end := time.Now(), time.Now().Add(time.Hour); now.Before(end); {
		before := r.peers[0].silent
		now = now.Add(r.ask(now))
		asked += r.peers[0].silent - before
	}
	if asked < 5 || asked > 15 {
		t.Errorf("asked %d times in an hour", asked)
	}
}

// TestAloneItSleeps: without peers there is nothing to ask, and the questions by which a place is found are kept for later.
func TestAloneItSleeps(t *testing.T) {
	r, err := New("127.0.0.1:0", time.Second, filepath.Join(t.TempDir(), "x"), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer r.conn.Close()
	for range 2 * eagerCount {
		if wait := r.ask(time.Now()); wait != saveEvery {
			t.Fatalf("alone: got %v until it looks again, want %v", wait, saveEvery)
		}
	}
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{newAsker(t).LocalAddr().String()}})
	for n := range eagerCount {
		if wait := r.ask(time.Now()); wait != eagerEvery {
			t.Fatalf("question %d to its first peer: got %v until the next, want %v", n, wait, eagerEvery)
		}
	}
}

// The traffic of an idle worker for its place in the network stays within what docs/results/before-reports.md says.
func TestIdleTraffic(t *testing.T) {
	const headers = 28 // IPv4 and UDP
	perQuestion := 2 * (datagramSize + headers) * 8
	if bits := 2 * float64(perQuestion) / defaultProbeEvery.Seconds(); bits > 300 {
		t.Errorf("%.0f bit/s, both directions, own questions and those of others", bits)
	}
}

func TestCoordinateFileThatIsNone(t *testing.T) {
	for _, text := range []string{"", "{", `{"vec":[1e99,0,0]}`, `{"height":-1}`, `[]`} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "coordinate.json"), []byte(text), fs.FileMode(0o600)); err != nil {
			t.Fatal(err)
		}
		r, _, stop := prober(t, dir)
		if r.known {
			t.Errorf("%q was believed", text)
		}
		stop()
	}
}

func TestOldPlaceIsForgotten(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "coordinate.json")
	if err := os.WriteFile(file, []byte(`{"vec":[1,2,3],"height":1,"error":0.1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	r, _, stop := prober(t, dir)
	if stop(); !r.known || r.viv.Coordinate().Vec != [3]float64{1, 2, 3} {
		t.Error("a place of a moment ago was forgotten")
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(file, old, old); err != nil {
		t.Fatal(err)
	}
	if r, _, _ := prober(t, dir); r.known {
		t.Error("a place of an hour ago was believed")
	}
}

func TestPlaceIsToldAnewOnlyWhenItMoved(t *testing.T) {
	r := &Meter{known: true, viv: nil}
	a := spec.Coordinate{Vec: [3]float64{10, 0, 0}, Height: 1}
	b := a
	b.Vec[0], b.Height = 10.3, 1.3
	if d := drift(a, b); math.Abs(d-0.6) > 1e-9 {
		t.Errorf("drift %v", d)
	}
	r.peers = []*ping{{usual: 20}, {usual: 40}, {}}
	if ms := r.usualLocked(); ms != 30 {
		t.Errorf("the usual round trip is %v", ms)
	}
}

// Reports tell of one peer after the other, and of none that does not answer.
func TestHeardTakesTurns(t *testing.T) {
	r := &Meter{}
	for i := range 7 {
		r.peers = append(r.peers, &ping{name: fmt.Sprint("p", i), usual: float64(i) + 0.16})
	}
	r.peers[3].silent, r.peers[4].usual = silentTries, 0
	var names []string
	for range 4 {
		list := r.Heard(3)
		if len(list) > 3 {
			t.Errorf("%d at once", len(list))
		}
		for _, m := range list {
			names = append(names, fmt.Sprintf("%s=%g", m.Probe, m.Ms))
		}
	}
	if got := strings.Join(names, " "); got != "p0=0.2 p1=1.2 p2=2.2 p5=5.2 p6=6.2 p0=0.2 p1=1.2 p2=2.2 p5=5.2 p6=6.2 p0=0.2 p1=1.2" {
		t.Error(got)
	}
	if (&Meter{}).Heard(3) != nil || (*Meter)(nil).Heard(3) != nil {
		t.Error("nobody was measured")
	}
}

// TestPanicEndsNoRoundTrips: a datagram on which the worker panics is lost, and the next is answered.
func TestPanicEndsNoRoundTrips(t *testing.T) {
	r, err := New("127.0.0.1:0", time.Hour, filepath.Join(t.TempDir(), "x"), slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	peer := newAsker(t)
	r.SetPeers(wire.Peers{KeyID: 1, Key: keyA, List: []string{peer.LocalAddr().String()}})
	limit := r.limit
	r.limit = nil
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	q := datagram{kind: question, keyID: 1, nonce: 7}
	for n := range 100 {
		if _, err := peer.WriteToUDP(q.append(nil, keyA), r.conn.LocalAddr().(*net.UDPAddr)); err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			r.mu.Lock()
			r.limit = limit
			r.mu.Unlock()
		}
		buf := make([]byte, 100)
		_ = peer.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		for {
			size, _, err := peer.ReadFromUDP(buf)
			if err != nil {
				break
			}
			if d, err := parseDatagram(buf[:size], 1, keyA); err == nil && d.kind == answer && d.nonce == 7 {
				if n < 1 {
					t.Error("it did not panic")
				}
				return
			}
		}
	}
	t.Error("questions are answered no longer")
}
