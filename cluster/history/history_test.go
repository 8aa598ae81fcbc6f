package history

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

var update = flag.Bool("update", false, "write the golden file")

// noon is the time in tests that have no clock of their own.
var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

func open(file string) *History { return New(file, slog.New(slog.DiscardHandler)) }

// busy is what a worker uses at a time: something else each minute.
func busy(now time.Time, worker int) Reading {
	n := int(now.Unix()/60) + 7*worker
	return Reading{CPU: skerry.MilliCPU(n * 37 % 4000), Memory: skerry.Bytes(500+n*13%900) * skerry.MiB,
		Storage: skerry.Bytes(20000+n%50) * skerry.MiB, Instances: n % 12, Restarts: n % 2, RTT: time.Duration(900+n*7%400) * time.Microsecond,
		MostCPU: 4000, MostMemory: 2 * skerry.GiB}
}

func site4(now time.Time) map[string]Reading {
	out := map[string]Reading{site: {RTT: 20 * time.Millisecond}}
	for n := range 4 {
		out[fmt.Sprintf("worker-%d", n)] = busy(now, n)
	}
	return out
}

func minutes(points []view.HistoryPoint) (out []time.Time) {
	for _, p := range points {
		out = append(out, p.At)
	}
	return out
}

// TestADayIsKept: Run reads a point each minute, keeps a day of them, writes every ten minutes and at its end, and the next Run has the
// same points. The files stay below what a site may write.
func TestADayIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	var before []view.HistoryPoint
	synctest.Test(t, func(t *testing.T) {
		h := open(file)
		ctx, cancel := context.WithCancel(t.Context())
		go h.Run(ctx, func(context.Context) (map[string]Reading, error) { return site4(time.Now()), nil })
		var written int64
		time.Sleep(2 * firstRead)
		for hour := range 50 {
			had := size(t, file)
			time.Sleep(time.Hour)
			synctest.Wait()
			grown := size(t, file) - had
			if written += max(grown, 0); grown > 6<<10 {
				t.Errorf("hour %d: got %d bytes written, want at most 6 KiB", hour, grown)
			}
		}
		if written < 50<<10 {
			t.Errorf("got %d bytes written in 50 hours, want what 4 workers take", written)
		}
		cancel()
		synctest.Wait()
		before = h.Show("worker-2", time.Now(), Span, Every)
		if got := len(before); got != maxPoints {
			t.Fatalf("got %d points, want %d", got, maxPoints)
		}
		for _, p := range before {
			want := busy(p.At, 2)
			if p.CPU != want.CPU || p.Memory != want.Memory || p.Storage != want.Storage || p.Instances != want.Instances ||
				p.Restarts != want.Restarts || p.RTTMs != float64(want.RTT.Microseconds())/1000 || p.Workers != 1 {
				t.Fatalf("got point %+v, want %+v", p, want)
			}
		}
		again := open(file)
		again.load()
		if got := again.Show("worker-2", time.Now(), Span, Every); !reflect.DeepEqual(got, before) {
			t.Errorf("got %d points from the file, want the %d that were in memory", len(got), len(before))
		}
		got := again.Show(site, time.Now(), time.Hour, time.Hour)
		if last := got[len(got)-1]; last.Workers != 4 || last.RTTMs != 20 || last.Memory < 2000*skerry.MiB {
			t.Errorf("got the site's last point %+v, want the sum of four workers and the round trip to the root", last)
		}
	})
	if got, old := size(t, file), size(t, file+oldSuffix); got+old > 2*maxFile || old == 0 {
		t.Errorf("got files of %d and %d bytes, want two of at most %d", got, old, maxFile)
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

// TestADayOfShortLives: a role that is started again every four minutes has a day of points, too.
func TestADayOfShortLives(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	now := noon
	for range maxPoints/4 + 5 {
		h := open(file)
		h.load()
		for range 4 {
			now = now.Add(Every)
			h.add(now, map[string]Reading{"a": busy(now, 0)})
		}
		h.save()
	}
	h := open(file)
	h.load()
	if got := len(h.Show("a", now, Span, Every)); got != maxPoints {
		t.Errorf("got %d points, want %d", got, maxPoints)
	}
}

// TestManyWorkers: the site's sums have all of them, the history of each is kept for 64, and a day of that stays within the two files.
func TestManyWorkers(t *testing.T) {
	h := open(filepath.Join(t.TempDir(), "history"))
	const workers = 100
	read := func(now time.Time) map[string]Reading {
		out := map[string]Reading{}
		for n := range workers {
			out[fmt.Sprintf("worker-%03d", n)] = busy(now, n)
		}
		return out
	}
	now := noon
	for range 2 * maxPoints / writeEach {
		for range writeEach {
			now = now.Add(Every)
			h.add(now, read(now))
		}
		h.save()
	}
	if got := h.Left(); got != workers-MaxWorkers {
		t.Errorf("got %d workers left out, want %d", got, workers-MaxWorkers)
	}
	list := h.Show(site, now, Span, Every)
	if got := list[len(list)-1].Workers; got != workers || len(list) != maxPoints {
		t.Errorf("got %d points, the last with %d workers, want %d with %d", len(list), got, maxPoints, workers)
	}
	if h.Has("worker-064") || !h.Has("worker-063") {
		t.Errorf("got worker-063 %v and worker-064 %v, want the first 64 alone", h.Has("worker-063"), h.Has("worker-064"))
	}
	for _, path := range []string{h.file, h.file + oldSuffix} {
		if got := size(t, path); got > maxFile {
			t.Errorf("got %d bytes in %s, want at most %d", got, path, maxFile)
		}
	}
	// A day after they are gone, their places are free.
	for range maxPoints + 1 {
		now = now.Add(Every)
		h.add(now, map[string]Reading{"new": busy(now, 0)})
	}
	h.save()
	h.add(now, map[string]Reading{"new": busy(now, 0)})
	if h.Has("worker-000") || !h.Has("new") {
		t.Errorf("got worker-000 %v and new %v, want the new worker alone", h.Has("worker-000"), h.Has("new"))
	}
}

// TestNonsenseIsBounded: a worker says whatever it likes, and the sums stay sums.
func TestNonsenseIsBounded(t *testing.T) {
	h := open("")
	h.add(noon, map[string]Reading{"a": {CPU: math.MaxInt64, Memory: math.MaxInt64, Storage: math.MaxInt64, Instances: math.MaxInt32},
		"b": {CPU: math.MaxInt64, Memory: -5, Storage: math.MinInt64}, "c": {CPU: 100, Memory: 64 * skerry.MiB}})
	for _, name := range []string{site, "a", "b", "c"} {
		list := h.Show(name, noon, time.Hour, Every)
		if len(list) != 1 || list[0].CPU < 0 || list[0].Memory < 0 || list[0].Storage < 0 {
			t.Errorf("%q: got points %+v, want one without anything below 0", name, list)
		}
	}
}

// TestALiarSpoilsNoSum: what a worker claims counts up to what it has, and all of that of others.
func TestALiarSpoilsNoSum(t *testing.T) {
	h := open("")
	h.add(noon, map[string]Reading{"liar": {CPU: 1 << 45, Memory: 1 << 45, MostCPU: 2000, MostMemory: skerry.GiB},
		"silent": {CPU: 1 << 45, Memory: 1 << 45}, // of its capacity
		"honest": {CPU: 500, Memory: 100 * skerry.MiB, MostCPU: 4000, MostMemory: 4 * skerry.GiB}})
	got := h.Show(site, noon, time.Hour, Every)
	if len(got) != 1 || got[0].CPU != 2500 || got[0].Memory != skerry.GiB+100*skerry.MiB || got[0].Workers != 3 {
		t.Errorf("got the site's points %+v, want one with 2.5 cores and 1124 MiB of 3 workers", got)
	}
}

// TestNobodyInTouch: while no worker is in touch, what the site uses is not known. It is not nothing.
func TestNobodyInTouch(t *testing.T) {
	h := open("")
	for n, workers := range []map[string]Reading{site4(noon), {site: {RTT: time.Millisecond}}, {}, site4(noon)} {
		h.add(noon.Add(time.Duration(n)*Every), workers)
	}
	want := []time.Time{noon, noon.Add(3 * time.Minute)}
	if got := minutes(h.Show(site, noon.Add(5*time.Minute), time.Hour, Every)); !slices.Equal(got, want) {
		t.Errorf("got points of the site at %v, want %v", got, want)
	}
}

// TestClocks: points of a clock that was wrong are not shown once it is right, and hide none that are.
func TestClocks(t *testing.T) {
	h := open(filepath.Join(t.TempDir(), "history"))
	put := func(now time.Time) { h.add(now, map[string]Reading{"a": {CPU: 100}}) }
	put(time.Unix(120, 0)) // a board without a battery
	put(noon.Add(-2 * time.Minute))
	put(noon.AddDate(10, 0, 0))
	put(noon.Add(-time.Minute))
	put(noon)
	put(noon.Add(-time.Minute)) // set back by a minute
	want := []time.Time{noon.Add(-2 * time.Minute), noon.Add(-time.Minute), noon}
	if got := minutes(h.Show("a", noon, Span, Every)); !slices.Equal(got, want) {
		t.Errorf("got points at %v, want %v", got, want)
	}
	h.save()
	again := open(h.file)
	again.load()
	if got := minutes(again.Show("a", noon, Span, Every)); !slices.Equal(got, want) {
		t.Errorf("after a restart: got points at %v, want %v", got, want)
	}
}

// TestClockOfABoard: a board without a battery starts in 1970, and keeps the points of the day when it is told what time it is.
func TestClockOfABoard(t *testing.T) {
	h := open(filepath.Join(t.TempDir(), "history"))
	put := func(now time.Time) {
		h.add(now, map[string]Reading{"a": {CPU: 100}})
		h.save()
	}
	put(noon.Add(-time.Hour))
	put(time.Unix(60, 0))
	put(noon)
	want := []time.Time{noon.Add(-time.Hour), noon}
	for _, name := range []string{site, "a"} {
		if got := minutes(h.Show(name, noon, Span, Every)); !slices.Equal(got, want) {
			t.Errorf("%q: got points at %v, want %v", name, got, want)
		}
	}
}

// TestPlacesOfAWrongClock: a worker that was read while the clock was ahead and left keeps its place for a day, as any other, and a clock
// that jumps ahead takes no place away.
func TestPlacesOfAWrongClock(t *testing.T) {
	h := open(filepath.Join(t.TempDir(), "history"))
	now := noon.AddDate(10, 0, 0)
	h.add(now, map[string]Reading{"gone": {CPU: 100}})
	h.save()
	h.add(noon, map[string]Reading{"away": {CPU: 100}})
	h.save()
	h.add(noon.AddDate(1, 0, 0), map[string]Reading{"here": {CPU: 100}}) // for one reading
	if got := minutes(h.Show("away", noon, Span, Every)); !slices.Equal(got, []time.Time{noon}) {
		t.Errorf("after a jump ahead: got points at %v, want the one at %v", got, noon)
	}
	for n := range maxPoints {
		h.add(noon.Add(time.Duration(n)*Every), map[string]Reading{"here": {CPU: 100}})
	}
	for _, name := range []string{"gone", "away"} {
		if h.Has(name) {
			t.Errorf("a day after %s left, it has a place, want none", name)
		}
	}
	if !h.Has("here") {
		t.Errorf("got no history of a worker that is there")
	}
}

// TestSteps: a step has the mean, the fewest instances and all restarts; a step in which nothing was read has no point.
func TestSteps(t *testing.T) {
	h := open("")
	for _, r := range []struct {
		after int
		r     Reading
	}{{0, Reading{CPU: 100, Instances: 3, Restarts: 1, RTT: time.Millisecond}}, {9, Reading{CPU: 300, Instances: 1, Restarts: 2}},
		{10, Reading{CPU: 50, Instances: 2}}, {35, Reading{CPU: 10}}} {
		h.add(noon.Add(time.Duration(r.after)*time.Minute), map[string]Reading{"a": r.r})
	}
	got := h.Show("a", noon.Add(40*time.Minute), time.Hour, 10*time.Minute)
	want := []view.HistoryPoint{{At: noon, CPU: 200, Instances: 1, Restarts: 3, RTTMs: 1, Workers: 1},
		{At: noon.Add(10 * time.Minute), CPU: 50, Instances: 2, Workers: 1}, {At: noon.Add(30 * time.Minute), CPU: 10, Workers: 1}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got points %+v, want %+v", got, want)
	}
	if got := h.Show("nobody", noon, Span, Every); got == nil || len(got) != 0 {
		t.Errorf("got points %v of a worker that is not there, want an empty list", got)
	}
}

// written makes a file of several blocks and gives it with the times in each.
func written(t *testing.T) (data []byte, blocks [][]time.Time) {
	t.Helper()
	h := open(filepath.Join(t.TempDir(), "history"))
	now := noon
	for range 4 {
		var in []time.Time
		for range 3 {
			now = now.Add(Every)
			in = append(in, now)
			h.add(now, site4(now))
		}
		h.save()
		blocks = append(blocks, in)
	}
	data, err := os.ReadFile(h.file)
	if err != nil {
		t.Fatal(err)
	}
	return data, blocks
}

func readBack(data []byte) *History {
	h := open("")
	h.take(unseal(data))
	return h
}

// TestDamageCostsOneBlock: whatever byte is wrong, or missing, and wherever the file ends, all other blocks are read as they were.
func TestDamageCostsOneBlock(t *testing.T) {
	data, blocks := written(t)
	end := noon.Add(time.Hour)
	whole := readBack(data).Show("worker-1", end, Span, Every)
	if got := len(whole); got != 12 {
		t.Fatalf("got %d points from a whole file, want 12", got)
	}
	starts := []int{}
	for at := 0; at < len(data); {
		starts = append(starts, at)
		next := bytes.Index(data[at+1:], []byte(magic))
		if next < 0 {
			break
		}
		at += 1 + next
	}
	if len(starts) != len(blocks) {
		t.Fatalf("got %d blocks, want %d", len(starts), len(blocks))
	}
	blockOf := func(at int) int {
		n, ok := slices.BinarySearch(starts, at)
		if !ok {
			n--
		}
		return n
	}
	check := func(what string, got []view.HistoryPoint, lost int) {
		t.Helper()
		want := slices.DeleteFunc(slices.Clone(whole), func(p view.HistoryPoint) bool { return slices.Contains(blocks[lost], p.At) })
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: got points at %v, want all but block %d: %v", what, minutes(got), lost, minutes(want))
		}
	}
	for at := range data {
		for _, flip := range []byte{0x01, 0x80, 0xff} {
			bad := slices.Clone(data)
			bad[at] ^= flip
			check(fmt.Sprintf("byte %d xor %#x", at, flip), readBack(bad).Show("worker-1", end, Span, Every), blockOf(at))
		}
		missing := slices.Delete(slices.Clone(data), at, at+1)
		check(fmt.Sprintf("without byte %d", at), readBack(missing).Show("worker-1", end, Span, Every), blockOf(at))
		cut := readBack(data[:at]).Show("worker-1", end, Span, Every)
		if want := whole[:3*blockOf(at)]; len(cut) != len(want) || len(want) > 0 && !reflect.DeepEqual(cut, want) {
			t.Fatalf("cut at byte %d: got points at %v, want %v", at, minutes(cut), minutes(want))
		}
	}
}

// TestGoesOnAfterATornWrite: what is appended to half a block is read.
func TestGoesOnAfterATornWrite(t *testing.T) {
	data, _ := written(t)
	file := filepath.Join(t.TempDir(), "history")
	if err := os.WriteFile(file, data[:len(data)-40], 0o600); err != nil {
		t.Fatal(err)
	}
	h := open(file)
	h.load()
	later := noon.Add(30 * time.Minute)
	h.add(later, site4(later))
	h.save()
	again := open(file)
	again.load()
	got := minutes(again.Show("worker-0", later, Span, Every))
	if len(got) != 10 || got[9] != later {
		t.Errorf("got points at %v, want nine of before and one at %v", got, later)
	}
}

// TestCannotWrite: a history whose file cannot be written stays in memory, and is written again once it can be.
func TestCannotWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	h := open(filepath.Join(dir, "history"))
	h.load()
	h.add(noon, site4(noon))
	h.save()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	h.add(noon.Add(Every), site4(noon))
	h.save()
	if got := len(h.Show("worker-0", noon.Add(Every), Span, Every)); got != 2 || h.failed {
		t.Errorf("got %d points in memory, failed %v; want 2 and that the last write went well", got, h.failed)
	}
	again := open(h.file)
	again.load()
	if got := minutes(again.Show("worker-0", noon.Add(Every), Span, Every)); len(got) != 1 {
		t.Errorf("got points at %v from the file, want the second one", got)
	}
}

// TestOlderFile: a file of the first version is read by all later ones.
func TestOlderFile(t *testing.T) {
	file := filepath.Join("testdata", "history-1")
	if *update {
		data, _ := written(t)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := open(file)
	h.load()
	list := h.Show("worker-3", noon.Add(time.Hour), Span, Every)
	if len(list) != 12 {
		t.Fatalf("got %d points, want 12", len(list))
	}
	for _, p := range list {
		if want := busy(p.At, 3); p.CPU != want.CPU || p.Memory != want.Memory || p.Instances != want.Instances {
			t.Errorf("at %v: got point %+v, want %+v", p.At, p, want)
		}
	}
}
