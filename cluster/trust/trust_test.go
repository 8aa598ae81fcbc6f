package trust

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/evidence"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// yard is a site as a scenario describes it. Workers answer round trips at their own name.
type yard struct {
	now     time.Time
	at      map[string]*spec.Coordinate // of workers that are in touch
	workers map[string]*Worker
	t       *Trust
}

func newYard() *yard {
	y := &yard{now: time.Unix(1e9, 0), at: map[string]*spec.Coordinate{}, workers: map[string]*Worker{}}
	y.t = New(y)
	y.t.Start(y.now)
	return y
}

func (y *yard) At(probe string) string                { return probe }
func (y *yard) Position(name string) *spec.Coordinate { return y.at[name] }

func number(t *testing.T, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// do carries out a line of a scenario, and gives the findings.
func (y *yard) do(t *testing.T, verb string, args []string) string {
	t.Helper()
	var name string
	if len(args) > 0 {
		name = args[0]
	}
	say := func(f Finding) (out string) {
		if f.Text != "" {
			out = "counted: " + f.Text
		}
		switch why := y.workers[f.Worker].Quarantine(); {
		case f.Changed && why != "":
			out += "; quarantine: " + why
		case f.Changed:
			out += "; out of quarantine"
		}
		return strings.TrimPrefix(out, "; ")
	}
	switch verb {
	case "join":
		for _, name := range args {
			y.workers[name] = y.t.Add(name, Record{})
		}
	case "remove":
		y.t.Remove(name)
		delete(y.workers, name)
	case "restart": // records outlive the process
		next := newYard()
		next.now, next.at = y.now, y.at
		next.t.Start(y.now)
		for name, w := range y.workers {
			data, err := json.Marshal(w.Record())
			var r Record
			if err == nil {
				err = json.Unmarshal(data, &r)
			}
			if err != nil {
				t.Fatal(err)
			}
			next.workers[name] = next.t.Add(name, r)
		}
		*y = *next
		y.t.site = y
	case "has": // cores
		f, found := y.t.Capacity(y.now, name, &wire.WorkerFacts{Capacity: spec.Resources{CPU: skerry.MilliCPU(1000 * number(t, args[1])), Memory: skerry.GiB}})
		return strings.TrimSuffix(fmt.Sprintf("believed: %s; %s", f.Capacity.CPU, say(found)), "; ")
	case "uses": // cores
		r := &wire.WorkerReport{Instances: map[skerry.InstanceID]wire.QoS{"web-1": {CPU: skerry.MilliCPU(1000 * number(t, args[1]))}}}
		return say(y.t.Use(y.now, name, r))
	case "at": // milliseconds along a line
		y.at[name] = &spec.Coordinate{Vec: [spec.CoordinateDims]float64{number(t, args[1])}}
	case "away":
		delete(y.at, name)
	case "measures": // OTHER MS ...
		var list []wire.PeerRTT
		for i := 1; i+1 < len(args); i += 2 {
			list = append(list, wire.PeerRTT{Probe: args[i], Ms: number(t, args[i+1])})
		}
		return say(y.t.Place(y.now, name, y.at[name], list))
	case "repeats":
		return say(y.t.Odd(y.now, name, evidence.Replays, "it repeats itself"))
	case "forges":
		return say(y.t.Mark(y.now, name, evidence.Tokens, "it forges tokens"))
	case "slow":
		return say(y.t.Slow(y.now, name, int(number(t, args[1])), "it does not start"))
	case "starts":
		y.t.Started(y.now, name)
	case "after":
		d, err := time.ParseDuration(name)
		if err != nil {
			t.Fatal(err)
		}
		y.now = y.now.Add(d)
		var out []string
		for _, name := range y.t.Overdue(y.now) {
			text := say(y.t.Review(y.now, name))
			if y.t.Clear(name) {
				text = strings.TrimPrefix(text+"; no longer a suspect", "; ")
			}
			if text != "" {
				out = append(out, name+": "+text)
			}
		}
		return strings.Join(out, ". ")
	case "uncordon":
		claims, suspected := y.t.Restore(name)
		out := fmt.Sprintf("doubted: %v", suspected)
		if claims != nil {
			out += ", has " + claims.CPU.String()
		}
		return out
	case "rank":
		share, why := y.workers[name].Rank()
		if share == 0 {
			return "full"
		}
		return fmt.Sprintf("%g, %s", share, why)
	case "misplaced":
		return strconv.FormatBool(y.workers[name].Misplaced())
	case "due":
		if at := y.t.Due(); !at.IsZero() {
			return "in " + at.Sub(y.now).String()
		}
	default:
		t.Fatalf("no verb %q", verb)
	}
	return ""
}

// TestScenarios plays the files below testdata: a command each line, and behind > what follows.
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
			y := newYard()
			lines := bufio.NewScanner(f)
			for n := 1; lines.Scan(); n++ {
				command, want, _ := strings.Cut(lines.Text(), ">")
				words := strings.Fields(command)
				if len(words) == 0 || strings.HasPrefix(words[0], "#") {
					continue
				}
				if got := y.do(t, words[0], words[1:]); got != strings.TrimSpace(want) {
					t.Errorf("%s:%d: %s: %q, want %q", file, n, strings.TrimSpace(command), got, strings.TrimSpace(want))
				}
				if faults := y.t.Audit(y.workers); len(faults) > 0 {
					t.Errorf("%s:%d: %v", file, n, faults)
				}
			}
		})
	}
}

// TestUseThatCannotBe: amounts below zero or beyond any machine are counted against a worker, and large ones are not.
func TestUseThatCannotBe(t *testing.T) {
	for text, r := range map[string]wire.WorkerReport{
		"": {Used: spec.Resources{CPU: 900_000, Memory: 60 << 10 * skerry.GiB}, Instances: map[skerry.InstanceID]wire.QoS{"a": {CPU: 900_000, Waiting: 1.2}}},
		"it reports that -1 cores and 0 of memory are used":       {Used: spec.Resources{CPU: -1000}},
		"it reports that a waits for a processor 1.6 of the time": {Instances: map[skerry.InstanceID]wire.QoS{"a": {Waiting: 1.6}}},
		"it reports that a waits for a processor -1 of the time":  {Instances: map[skerry.InstanceID]wire.QoS{"b": {}, "a": {Waiting: -1}}},
		"it reports that a uses 0 cores and 65Ti of memory":       {Instances: map[skerry.InstanceID]wire.QoS{"a": {Memory: 65 << 10 * skerry.GiB}}},
	} {
		if got := impossible(&r); got != text {
			t.Errorf("%+v: %q, want %q", r, got, text)
		}
	}
}

// TestAuditFindsWhatIsWrong: each list that says something else than the evidence is found.
func TestAuditFindsWhatIsWrong(t *testing.T) {
	for name, spoil := range map[string]func(y *yard){
		"there is evidence about w1, which was removed": func(y *yard) { delete(y.workers, "w1") },
		"w2 can have no evidence":                       func(y *yard) { y.workers["w2"] = &Worker{} },
		"w1: its list says that it is a suspect: false": func(y *yard) { y.workers["w1"].record.Trust = &evidence.Book{} },
		"w3 is gone, and still a suspect":               func(y *yard) { y.t.suspects["w3"] = &Worker{} },
		"w1 measured a round trip to itself":            func(y *yard) { y.workers["w1"].heard = map[string]heard{"w1": {ms: 1}} },
		"w1: its claim of 1 cores and 0 of memory is not believed, and it had 4 cores and 0 of memory": func(y *yard) {
			y.workers["w1"].record.Claims, y.workers["w1"].record.Base.CPU = &spec.Resources{CPU: 1000}, 4000
		},
	} {
		y := newYard()
		y.workers["w1"] = y.t.Add("w1", Record{})
		if faults := y.t.Audit(y.workers); len(faults) > 0 {
			t.Fatal(faults)
		}
		if spoil(y); !slices.Contains(y.t.Audit(y.workers), name) {
			t.Errorf("%v, want %q among them", y.t.Audit(y.workers), name)
		}
	}
}

// TestNobody: a worker without evidence, and one that was never added, are trusted.
func TestNobody(t *testing.T) {
	for _, w := range []*Worker{nil, {}} {
		share, why := w.Rank()
		if w.Record() != (Record{}) || w.Quarantine() != "" || w.Misplaced() || share != 0 || why != "" {
			t.Errorf("%+v is not trusted: rank %g, %q", w, share, why)
		}
	}
}
