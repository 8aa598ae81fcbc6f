//go:build !wasip1

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"skerry.dev/skerry/examples/video/vision"
)

// The network says of each picture what a slow one says that is written as the definition is.
func TestInference(t *testing.T) {
	net := newNetwork()
	var different [][]float32
	for n := range inputs {
		var picture []float32
		for _, p := range drawPicture(n) {
			picture = append(picture, float32(p))
		}
		want := slow(net, picture)
		if got := net.infer(picture); !slices.Equal(got, want) {
			t.Errorf("picture %d: %v, not %v", n, got, want)
		}
		if !slices.ContainsFunc(different, func(v []float32) bool { return slices.Equal(v, want) }) {
			different = append(different, want)
		}
	}
	if len(different) != inputs {
		t.Errorf("%d pictures have %d answers", inputs, len(different))
	}
	if got := net.infer(make([]float32, size*size)); slices.Max(got) != 0 || slices.Min(got) != 0 {
		t.Errorf("it sees %v in a picture of nothing", got)
	}
}

// slow computes with whole numbers, by the definition.
func slow(net *network, picture []float32) []float32 {
	v, edge := make([]int64, len(picture)), size
	for i := range v {
		v[i] = int64(picture[i])
	}
	for _, c := range []conv{net.first, net.second} {
		next := make([]int64, c.out*edge/2*edge/2)
		for o := range c.out {
			for y := range edge {
				for x := range edge {
					sum := int64(0)
					for i := range c.in {
						for k := range 9 {
							if sx, sy := x+k%3-1, y+k/3-1; sx >= 0 && sx < edge && sy >= 0 && sy < edge {
								sum += int64(c.weights[(o*c.in+i)*9+k]) * v[(i*edge+sy)*edge+sx]
							}
						}
					}
					at := (o*edge/2+y/2)*edge/2 + x/2
					next[at] = max(next[at], min(steps-1, sum/int64(c.shift)))
				}
			}
		}
		v, edge = next, edge/2
	}
	out := make([]float32, classes)
	for c := range out {
		for i := range v {
			out[c] += float32(int64(net.full[c*len(v)+i]) * v[i])
		}
	}
	return out
}

// The sum of a picture of the video is that of the objects which are known to be in it.
func TestVideo(t *testing.T) {
	dir := t.TempDir()
	k := open(t, "video", dir)
	for n := range 4 {
		a, err := k.answer(n, dir)
		if err != nil {
			t.Fatal(err)
		}
		truth := vision.World(uint32(n%2), uint32(n)*vision.ClockRate/3, videoWidth, videoHeight)
		found := vision.Detect(vision.Draw(uint32(n%2), uint32(n)*vision.ClockRate/3, videoWidth, videoHeight), videoWidth, videoHeight)
		if len(found) != len(truth) {
			t.Errorf("picture %d: %d of %d", n, len(found), len(truth))
		}
		var text []byte
		for _, o := range found {
			if !slices.ContainsFunc(truth, func(w vision.Object) bool { return math.Hypot(o.X-w.X, o.Y-w.Y) < 2 }) {
				t.Errorf("picture %d: nothing is at %+v", n, o)
			}
			text = fmt.Appendf(text, "%.0f %.0f %.0f\n", o.X, o.Y, math.Round(o.Radius))
		}
		if want := fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)); a.Sum != want {
			t.Errorf("picture %d: %s, not %s", n, a.Sum, want)
		}
	}
	if err := os.WriteFile(frameName(dir, 3), []byte("short"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := k.answer(3, dir); err == nil {
		t.Error("half a picture was seen")
	}
}

// Requests that come at once read what is known to be there, and what they wrote is in the files when they are answered.
func TestDatabase(t *testing.T) {
	dir := t.TempDir()
	k := open(t, "database", dir)
	var wg sync.WaitGroup
	for n := range inputs {
		wg.Go(func() {
			id := draws(n + 1)
			var want []byte
			for range reads + writes {
				want = append(want, body(int(id.next(0, rows-1)))...)
			}
			if a, err := k.answer(n, dir); err != nil || a.Sum != fmt.Sprintf("%08x", crc32.ChecksumIEEE(want)) || a.Load <= 0 || a.Processing <= 0 {
				t.Errorf("request %d: %+v %v", n, a, err)
			}
		})
	}
	wg.Wait()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	db, err := openFile(copied)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var written, all, synchronous int
	var mode string
	if err := db.QueryRow("SELECT count(*) FILTER (WHERE written > 0), count(*) FROM row").Scan(&written, &all); err != nil || all != rows || written < writes || written > inputs*writes {
		t.Errorf("%d of %d rows were written: %v", written, all, err)
	}
	if err := db.QueryRow("PRAGMA synchronous").Scan(&synchronous); err != nil || synchronous != 2 {
		t.Errorf("synchronous is %d: %v", synchronous, err)
	}
	if err := db.QueryRow("PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("the journal is %s: %v", mode, err)
	}
	// A row that another wrote wrongly makes another sum.
	right, err := k.answer(0, dir)
	if err != nil {
		t.Fatal(err)
	}
	first := draws(1)
	spoil, err := openFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer spoil.Close()
	if _, err := spoil.Exec("UPDATE row SET body = 'other' WHERE id = ?", int(first.next(0, rows-1))); err != nil {
		t.Fatal(err)
	}
	if a, err := k.answer(0, dir); err != nil || a.Sum == right.Sum {
		t.Errorf("a row that was spoiled is not seen: %v", err)
	}
}

// open prepares a service.
func open(t *testing.T, name, dir string) kernel {
	t.Helper()
	for _, s := range services() {
		if s.name == name {
			if err := s.prepare(dir); err != nil {
				t.Fatal(err)
			}
			k, err := s.open(dir)
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
	}
	t.Fatal(name)
	return nil
}

// Each service answers over HTTP with the sums that it prints, which are known.
func TestServices(t *testing.T) {
	known := map[string]string{"image": "79097233", "database": "5968b546 40b87c9b", "inference": "37003b7e 7ac6caab", "video": "a7132b90 66192052", "mqtt": "ee8c9946 518818a7"}
	for _, s := range services() {
		var printed bytes.Buffer
		if err := run([]string{"sums", s.name}, &printed); err != nil {
			t.Fatal(err)
		}
		sums := strings.Fields(printed.String())
		if len(sums) != s.answers || !strings.HasPrefix(strings.Join(sums, " "), known[s.name]) || known[s.name] == "" {
			t.Errorf("%s: %v", s.name, sums)
		}
		dir := t.TempDir()
		h, err := s.handler(open(t, s.name, dir), dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, s.answers} { // after the last it begins again
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/?n=%d", n), nil))
			var a answer
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK || a.Sum != sums[n%s.answers] || a.Total <= 0 {
				t.Errorf("%s %d: %d %s", s.name, n, w.Code, w.Body)
			}
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/?n=-1", nil)); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d", s.name, w.Code)
		}
	}
	for _, bad := range []string{"", "serve", "serve moon :0", "sums", "sums image now", "dance image"} {
		if err := run(strings.Fields(bad), &bytes.Buffer{}); err == nil {
			t.Errorf("%q works", bad)
		}
	}
}

func BenchmarkServices(b *testing.B) {
	for _, s := range services() {
		b.Run(s.name, func(b *testing.B) {
			dir := b.TempDir()
			if err := s.prepare(dir); err != nil {
				b.Fatal(err)
			}
			k, err := s.open(dir)
			if err != nil {
				b.Fatal(err)
			}
			for n := 0; b.Loop(); n++ {
				if _, err := k.answer(n%s.answers, dir); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
