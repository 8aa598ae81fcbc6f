package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/examples/video/vision"
)

// A packet comes out as it went in; what is none is refused.
func TestPacket(t *testing.T) {
	p := packet{camera: 7, sequence: 65535, frame: 123456, last: true, captured: time.Unix(1700000000, 250000000), width: 4, height: 3, line: 2, pixels: []byte{1, 2, 3, 4}}
	b := p.encode(nil)
	q, err := decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := q.captured.Sub(p.captured); d < -time.Microsecond || d > time.Microsecond {
		t.Errorf("captured %v later", d)
	}
	q.captured = p.captured
	if q.camera != 7 || q.sequence != 65535 || q.frame != p.frame || !q.last || q.width != 4 || q.height != 3 || q.line != 2 || !bytes.Equal(q.pixels, p.pixels) {
		t.Errorf("%+v", q)
	}
	for i, bad := range [][]byte{nil, b[:20], b[:len(b)-1], append(bytes.Clone(b), 0)} {
		if _, err := decode(bad); err == nil {
			t.Errorf("%d is taken", i)
		}
	}
	for _, at := range []int{0, 1, 12, 16, 28, 30} { // version, type, extension, length, line
		c := bytes.Clone(b)
		c[at] ^= 0x55
		if _, err := decode(c); err == nil {
			t.Errorf("it is taken with another byte %d", at)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&packet{camera: 1, frame: 9, captured: time.Unix(1, 1), width: 2, height: 2, line: 1, pixels: []byte{5, 6}}).encode(nil))
	f.Add([]byte("\x90\x60"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decode(b)
		if err != nil {
			return
		}
		a := &assembler{}
		if done := a.add(p); done != nil && len(done.pixels) != done.Width*done.Height {
			t.Error("a picture of another size")
		}
	})
}

// A picture is complete when all of its lines came, in whatever order; one that lacks a line is lost when the next begins.
func TestAssembler(t *testing.T) {
	a := &assembler{}
	line := func(frame uint32, at int) *picture {
		return a.add(&packet{frame: frame, width: 2, height: 3, line: at, pixels: []byte{byte(at), byte(at)}})
	}
	if line(1, 2) != nil || line(1, 0) != nil || line(1, 0) != nil {
		t.Error("it is not complete")
	}
	if p := line(1, 1); p == nil || !bytes.Equal(p.pixels, []byte{0, 0, 1, 1, 2, 2}) {
		t.Errorf("%+v", p)
	}
	if line(2, 0) != nil || line(3, 0) != nil || a.lost != 1 {
		t.Errorf("%d lost", a.lost)
	}
	if line(2, 1) != nil || line(3, 1) != nil || line(3, 2) == nil {
		t.Error("a line that came too late did harm")
	}
}

// Tracks follow the objects though pictures are missing, and end with them.
func TestTrack(t *testing.T) {
	k := &tracker{}
	frame := uint32(0)
	for i := range 60 {
		frame += vision.ClockRate / 10
		if i%7 == 3 {
			continue
		}
		k.add(&picture{Frame: frame, Width: 640, Height: 360, Found: vision.World(0, frame, 640, 360)})
	}
	if k.Switches != 0 || k.Found != k.Objects || k.Objects < 5*40 {
		t.Errorf("%+v", k)
	}
	for range dropAt {
		frame += vision.ClockRate / 10
		k.add(&picture{Frame: frame, Width: 640, Height: 360})
	}
	if len(k.tracks) != 0 {
		t.Errorf("%d tracks of nothing", len(k.tracks))
	}
}

// The four stages work together over real sockets. The world moves forty times slower than the clock: a busy machine leaves out most
// pictures, objects would else move too far from one to the next to be followed.
func TestPipeline(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	tr := newTracking()
	track := httptest.NewServer(tr)
	defer track.Close()
	d := newDetection(1)
	detect := httptest.NewServer(d)
	defer detect.Close()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAggregation(detect.URL)
	all.Go(func() { d.tell(ctx, track.URL) })
	all.Go(func() { a.send(ctx) })
	all.Go(func() {
		if err := a.receive(ctx, conn); err != nil {
			t.Error(err)
		}
	})
	for camera := range uint32(2) {
		all.Go(func() {
			if err := source(ctx, conn.LocalAddr().String(), camera, 160, 96, 20, 40); err != nil {
				t.Error(err)
			}
		})
	}
	var s Stats
	for deadline := time.Now().Add(10 * time.Minute); s.Pictures < 40; time.Sleep(50 * time.Millisecond) {
		if s = tr.stats(); time.Now().After(deadline) {
			t.Fatalf("%+v", s)
		}
	}
	if s.Recall < 0.9 || s.Rate <= 0 || s.Median["total"] <= 0 || s.Median["detection"] <= 0 || s.High["total"] < s.Median["total"] {
		t.Errorf("%+v", s)
	}
	for _, u := range []string{detect.URL, track.URL} {
		if resp, err := http.Post(u, "text/plain", strings.NewReader("no picture")); err != nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%v %v", resp, err)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"", "film", "source -size big", "source -size 9000x9", "source -slow 0", "detect -cores 0", "track 1", "native -for -1s"} {
		if err := run(t.Context(), strings.Fields(args), nil); err == nil {
			t.Errorf("%q works", args)
		}
	}
	if _, err := json.Marshal(newTracking().stats()); err != nil {
		t.Error(err)
	}
}
