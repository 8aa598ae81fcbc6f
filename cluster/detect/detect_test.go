package detect

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/wire"
)

// yard is a site as a scenario describes it.
type yard struct {
	now     time.Time
	links   map[string]time.Time // of workers that have, or had, a connection: since when
	up      map[string]bool
	mute    map[string]bool // they answer no round trips
	near    map[[2]string]bool
	idle    map[string]bool // nothing runs there
	workers map[string]*Worker
	d       *Detector
}

func (y *yard) Link(name string) (bool, time.Time, bool) {
	since, known := y.links[name]
	return y.up[name], since, known
}

func (y *yard) Reach(name string) (string, wire.PeerID) {
	if y.mute[name] {
		return "", 0
	}
	return name + ":7443", 0
}

func (y *yard) Witnesses() (out []string) {
	for name := range y.workers {
		if !y.mute[name] && !y.workers[name].Lost() {
			out = append(out, name)
		}
	}
	return out
}

func (y *yard) Exchange(a, b string) bool { return y.near[[2]string{a, b}] || y.near[[2]string{b, a}] }
func (y *yard) Serves(name string) bool   { return !y.idle[name] }

// Spot puts w1, w2 ... in this order on the ring.
func (y *yard) Spot(name string) uint64 {
	n, _ := strconv.ParseUint(name[1:], 10, 64)
	return n
}

// do carries out a line of a scenario, and gives what the detector says.
func (y *yard) do(t *testing.T, verb string, args []string) (out string) {
	t.Helper()
	d := y.d
	var name string
	if len(args) > 0 {
		name = args[0]
	}
	say := func(yes bool, text string) string {
		if yes {
			return text
		}
		return "nothing"
	}
	switch verb {
	case "start":
		for _, name := range args {
			y.workers[name], y.links[name] = d.Add(name), y.now
		}
		d.Start(y.now)
		for _, name := range args {
			d.See(name)
		}
	case "connect":
		if y.workers[name] == nil {
			y.workers[name] = d.Add(name)
		}
		y.links[name], y.up[name] = y.now, true
		d.Up(name)
	case "disconnect":
		y.links[name], y.up[name] = y.now, false
		d.See(name)
		return say(d.Suspect(y.now, name), "suspected")
	case "beats":
		return say(d.Alive(name), "back")
	case "quiet":
		ago, err := time.ParseDuration(args[1])
		if err != nil {
			t.Fatal(err)
		}
		if !d.Silent(name, y.now.Add(-ago)) {
			return "nothing"
		}
		return "quiet, " + say(d.Suspect(y.now, name), "suspected")
	case "mute":
		y.mute[name] = true
	case "idle":
		y.idle[name] = true
	case "near":
		y.near[[2]string{name, args[1]}] = true
	case "forget":
		delete(y.workers, name)
		delete(y.links, name)
		delete(y.up, name)
		d.Remove(name)
	case "after":
		after, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		y.now = y.now.Add(after)
		for _, name := range d.Overdue(y.now) {
			since := d.Lose(name)
			out += fmt.Sprintf("%s is lost, out of touch for %s. ", name, y.now.Sub(since))
			y.up[name] = false
		}
	case "ask":
		by := map[string][]string{}
		for _, q := range d.Ask(y.now) {
			by[q.Suspect] = append(by[q.Suspect], q.Witness)
		}
		for _, name := range slices.Sorted(maps.Keys(by)) {
			out += fmt.Sprintf("%s about %s. ", strings.Join(by[name], ", "), name)
		}
	case "answer":
		return say(d.Witnessed(args[1], name, args[2] == "yes"), "another verdict")
	case "verdict":
		if out = d.Verdict(name); y.workers[name].CutOff() {
			out += "; cut off"
		}
		return out
	case "due":
		if at := d.Due(); !at.IsZero() {
			return "in " + at.Sub(y.now).String()
		}
	default:
		t.Fatalf("no verb %q", verb)
	}
	if out = strings.TrimSpace(out); out == "" {
		out = "nothing"
	}
	return out
}

// TestScenarios plays the files below testdata: a command each line, and behind > what the detector says.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			y := &yard{now: time.Unix(1e9, 0), links: map[string]time.Time{}, up: map[string]bool{}, mute: map[string]bool{},
				near: map[[2]string]bool{}, idle: map[string]bool{}, workers: map[string]*Worker{}}
			y.d = New(Options{LostAfter: 3 * time.Second, StartGrace: 30 * time.Second}, y)
			lines := bufio.NewScanner(f)
			for n := 1; lines.Scan(); n++ {
				command, want, _ := strings.Cut(lines.Text(), ">")
				words := strings.Fields(command)
				if len(words) == 0 || strings.HasPrefix(words[0], "#") {
					continue
				}
				if want = strings.TrimSpace(want); want == "" {
					want = "nothing"
				}
				if got := y.do(t, words[0], words[1:]); got != want {
					t.Errorf("%s:%d: %s: %q, want %q", file, n, strings.TrimSpace(command), got, want)
				}
				if faults := y.d.Audit(y.workers); len(faults) > 0 {
					t.Errorf("%s:%d: %v", file, n, faults)
				}
			}
		})
	}
}

// TestAuditFindsWhatIsWrong: each list that says something else than the worker is found.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(y *yard){
		"w1 is watched, and removed": func(y *yard) { delete(y.workers, "w1") },
		"nobody watches w2":          func(y *yard) { y.workers["w2"] = &Worker{} },
		"w1: its list says that it is silent: false; lost false, quiet false": func(y *yard) { y.up["w1"] = false },
		"w1: its list says that it is suspected: false":                       func(y *yard) { y.workers["w1"].suspicion = &suspicion{} },
		"w2 is gone, and still listed":                                        func(y *yard) { y.d.silent["w2"] = &Worker{} },
		"w1 is quiet; lost true, its beats come: false": func(y *yard) {
			y.workers["w1"].lost, y.workers["w1"].quiet = true, y.now
		},
	} {
		y := &yard{now: time.Unix(1, 0), links: map[string]time.Time{"w1": time.Unix(1, 0)}, up: map[string]bool{"w1": true}, workers: map[string]*Worker{}}
		y.d = New(Options{}, y)
		y.workers["w1"] = y.d.Add("w1")
		if faults := y.d.Audit(y.workers); len(faults) > 0 {
			t.Fatal(faults)
		}
		if spoil(y); !slices.Contains(y.d.Audit(y.workers), name) {
			t.Errorf("%v, want %q among them", y.d.Audit(y.workers), name)
		}
	}
}
