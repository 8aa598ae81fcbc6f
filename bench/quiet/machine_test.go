package quiet

import (
	"testing"
	"time"
)

// machine is a moment told by hand: times in s.
func machine(at, busy, stolen float64, list ...process) moment {
	m := moment{at: time.Unix(0, 0).Add(seconds(at)), busy: seconds(busy), stolen: seconds(stolen), processes: map[int]process{}}
	for _, p := range list {
		m.processes[p.pid] = p
	}
	return m
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func proc(pid, parent int, name string, used, reaped float64) process {
	return process{id: id{pid, 7}, parent: parent, name: name, used: seconds(used), reaped: seconds(reaped)}
}

// A machine on which 10 is the benchmark, 5 the shell that started it, and 20 the shell of somebody else.
func TestWhoseTimeItIs(t *testing.T) {
	start := []process{proc(1, 0, "init", 5, 100), proc(2, 0, "kthreadd", 0, 0), proc(3, 2, "kworker", 9, 0), proc(5, 1, "mine", 1, 50),
		proc(10, 5, "skerry", 2, 3), proc(20, 1, "theirs", 1, 40)}
	for _, c := range []struct {
		what   string
		busy   float64   // of the round of 10 s
		stolen float64   // of it
		middle []process // seen meanwhile
		end    []process // in place of those of the start with their PIDs, or more
		during bool
		others float64 // processors, as if it had rested
	}{
		{"nothing", 0, 0, nil, nil, false, 0},
		{"its own work and its child's", 9, 0, nil, []process{proc(10, 5, "skerry", 6, 3), proc(11, 10, "agent", 5, 0)}, false, 0},
		{"a child that it waited for", 9, 0, nil, []process{proc(10, 5, "skerry", 2, 12)}, false, 0},
		{"the kernel's threads", 9, 0, nil, []process{proc(3, 2, "kworker", 18, 0)}, false, 0},
		{"a container of its own that the first process adopted", 9, 0, []process{proc(30, 10, "conmon", 0, 0)},
			[]process{proc(30, 1, "conmon", 9, 0)}, false, 0},
		{"an adopted one that may be its own: told at rest, and not in the round", 9, 0, nil, []process{proc(31, 1, "conmon", 9, 0)}, false, 0.9},
		{"a child of somebody's shell", 9, 0, nil, []process{proc(40, 20, "cc", 9, 0)}, true, 0.9},
		{"one that somebody's shell waited for", 9, 0, nil, []process{proc(20, 1, "theirs", 1, 49)}, true, 0.9},
		{"a daemon that uses little", 0.4, 0, nil, []process{proc(20, 1, "theirs", 1.4, 40)}, false, 0.04},
		{"another machine", 0, 9, nil, nil, true, 0.9},
	} {
		w := New(Options{NoWait: true}, func(string) {})
		w.self, w.known, w.base = 10, map[id]bool{{10, 7}: true}, background
		w.parents, w.before = map[id]bool{{1, 7}: true, {5, 7}: true}, map[id]bool{{20, 7}: true}
		first, last := machine(0, 0, 0, start...), machine(10, c.busy, c.stolen, append(start[:len(start):len(start)], c.end...)...)
		var at moment
		w.look = func() (moment, error) { return at, nil }
		for _, at = range []moment{first, machine(5, 0, 0, append(start[:len(start):len(start)], c.middle...)...), last} {
			if _, err := w.now(); err != nil {
				t.Fatal(err)
			}
		}
		if text := w.during(&first, &last); (text != "") != c.during {
			t.Errorf("%s: the round is disturbed by %q", c.what, text)
		}
		if used, by, _ := w.others(&first, &last); used < c.others-1e-9 || used > c.others+1e-9 {
			t.Errorf("%s: others use %v processors, not %v: %v", c.what, used, c.others, by)
		}
	}
}

// What a shell of somebody waited for counts with what it used after the round began, and not before.
func TestEndedMeanwhile(t *testing.T) {
	a := machine(0, 0, 0, proc(1, 0, "init", 0, 0), proc(20, 1, "sh", 1, 0), proc(21, 20, "make", 2, 5), proc(22, 21, "cc", 30, 0))
	b := machine(10, 0, 0, proc(1, 0, "init", 0, 0), proc(20, 1, "sh", 1, 41))
	of := a.below([]int{20})
	used, by := spent(&a, &b, of, func(id) bool { return true })
	if used != 4*time.Second || by["sh"] != 4*time.Second {
		t.Errorf("4 s of 41 were used since, not %v: %v", used, by)
	}
}

func TestParse(t *testing.T) {
	p, err := parseProcess(42, "42 (a) b\x1b[2J) S 7 1 1 0 -1 0 0 0 0 0 100 50 25 5 20 0 1 0 12345 0")
	if want := (process{id{42, 12345}, 7, "a) b?[2J", seconds(1.5), seconds(0.3)}); err != nil || p != want {
		t.Errorf("the process is %+v (%v), not %+v", p, err, want)
	}
	busy, stolen, err := parseStat("cpu  10 20 30 1000 5 6 7 8 0 0\ncpu0")
	if busy != 600*time.Millisecond || stolen != 80*time.Millisecond || err != nil {
		t.Errorf("busy %v, stolen %v, %v", busy, stolen, err)
	}
	if d := parseStall("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500\nfull ..."); d != 2500*time.Microsecond {
		t.Errorf("stalled for %v", d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cpu  10 20 30 1000 5 6 7 8 0 0\n")
	f.Add("42 (sh) S 7 1 1 0 -1 0 0 0 0 0 100 50 25 5 20 0 1 0 12345 0")
	f.Add("some avg10=0.00 total=2500\n")
	f.Fuzz(func(t *testing.T, text string) {
		if busy, stolen, err := parseStat(text); err != nil && (busy != 0 || stolen != 0) {
			t.Errorf("%v and %v with %v", busy, stolen, err)
		}
		_, _ = parseProcess(1, text)
		_ = parseStall(text)
	})
}
