package sim

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Scenario is a fleet and what happens to it. Its text form is what `skerry sim --replay` reads:
//
//	# what it is about
//	seed 7
//	site a
//	worker a/edgewk1 cpu=2000 memory=4096
//	at 1.5s apply shop replicas=3
//	at 2s kill a/edgewk1
//	at 4s start a/edgewk1
//	settle 5m
//
// After the last line that begins with "at" all faults end, and the fleet has the time given by "settle" to come to what was
// asked for.
type Scenario struct {
	Notes   []string // comment lines at the top
	Seed    uint64   // of what is random while it runs
	Sites   []string
	Workers []Machinery
	Actions []Action
	Settle  time.Duration // 0: DefaultSettle
	// Lost is after how long the root gives up a site; 0: never.
	Lost time.Duration
	// Places: workers have places in the network, measure round trips to each other, and are witnesses.
	Places bool
}

// DefaultSettle is how long a fleet has to come to rest. It covers the longest of what it may have to wait for: the grace after
// the start of an orchestrator (30 s), resends and attempts to connect (up to 80 and 30 s), a retry of placement (1 min).
const DefaultSettle = 5 * time.Minute

// Machinery is a worker of a scenario.
type Machinery struct {
	Name   string // site/worker
	CPU    skerry.MilliCPU
	Memory skerry.Bytes
	Via    string // over what it is connected: "" the link, or wire.CarrierMQTT, an agent of others
}

// Action is one thing that happens, At after the start.
type Action struct {
	At     time.Duration
	Verb   string
	Target string // an application or a node
	Args   map[string]string
}

// verb says what an action may have.
type verb struct {
	target byte // 'a' an application, 's' a site, 'w' a worker, 'c' a worker or a site, 'n' any node
	args   string
}

// verbs is every action there is, with the names of its arguments.
var verbs = map[string]verb{
	"apply":   {'a', "shape owner replicas version cpu priority rigidness port disconnect reconnect canary max"},
	"scale":   {'a', "replicas at"}, // at a site that is alone, or by its owner
	"restart": {'a', "at"},
	"load":    {'a', "cpu"}, // what its instances bear together from now on, in thousandths of a core
	"delete":  {'a', ""},
	"evict":   {'s', "nth"},               // somebody deletes an instance at a site
	"kill":    {'n', ""},                  // the process ends
	"off":     {'n', ""},                  // the machine loses power
	"succeed": {'s', "after"},             // the machine dies for good; after a time a successor leads, in a later term
	"start":   {'n', "skew"},              // of what is not up; skew is how far its clock is off from now on
	"block":   {'c', "dir"},               // nothing goes up, down or (both) either way
	"open":    {'c', "dir"},               // the end of that
	"reset":   {'c', ""},                  // the connection breaks
	"slow":    {'c', "delay jitter loss"}, // of segments on the way to the parent and back
	"disk":    {'n', "slow fault nth"},    // how long a batch takes to persist, and what goes wrong with the disk
	"suffer":  {'w', "share"},             // how much of the time what runs there waits for a processor
	"hold":    {'w', "on"},                // an operator keeps new work away, or no longer
	"drain":   {'w', "parallel force"},    // an operator has all that can leave it
	"pause":   {'a', ""},                  // rollouts stay where they are
	"resume":  {'a', ""},
	"undo":    {'a', ""},         // back to the version before
	"lie":     {'c', "about"},    // it tells what is not so, from now on
	"inject":  {'c', "kind dir"}, // a bad message arrives at one end
	"forget":  {'w', ""},         // an operator removes a worker that is not up; it comes back empty
}

// ScenarioError names a line that cannot be read.
type ScenarioError struct {
	Line int
	Text string
}

func (e *ScenarioError) Error() string { return fmt.Sprintf("scenario, line %d: %s", e.Line, e.Text) }

// Limits of a scenario that is read.
const (
	maxScenarioLines = 20_000
	maxScenarioTime  = 30 * 24 * time.Hour
)

// ParseScenario reads the text form. Errors are *ScenarioError, or what r gives.
func ParseScenario(r io.Reader) (*Scenario, error) {
	s := &Scenario{}
	in := bufio.NewScanner(r)
	known := map[string]bool{"root": true}
	for n := 1; in.Scan(); n++ {
		bad := func(format string, args ...any) error { return &ScenarioError{n, fmt.Sprintf(format, args...)} }
		if n > maxScenarioLines {
			return nil, bad("there are more than %d lines", maxScenarioLines)
		}
		line := strings.TrimSpace(in.Text())
		if text, ok := strings.CutPrefix(line, "#"); ok {
			s.Notes = append(s.Notes, strings.TrimSpace(text))
			continue
		}
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		if len(f) < 2 {
			return nil, bad("%q is not complete", line)
		}
		var err error
		switch f[0] {
		case "seed":
			s.Seed, err = strconv.ParseUint(f[1], 10, 64)
		case "settle":
			s.Settle, err = parseTime(f[1])
		case "lost":
			s.Lost, err = parseTime(f[1])
		case "places":
			if err = oneOf(f[1], []string{"yes", "no"}); err == nil {
				s.Places = f[1] == "yes"
			}
		case "site":
			if err = skerry.CheckName(f[1]); err == nil && (known[f[1]] || len(s.Sites) >= 1000) {
				err = fmt.Errorf("site %s is there already, or there are too many", f[1])
			}
			known[f[1]] = true
			s.Sites = append(s.Sites, f[1])
		case "worker":
			var m Machinery
			if m, err = parseMachinery(f[1:]); err == nil {
				site, name, _ := strings.Cut(m.Name, "/")
				if err = skerry.CheckName(name); err == nil && (!slices.Contains(s.Sites, site) || known[m.Name] || len(s.Workers) >= 10_000) {
					err = fmt.Errorf("worker %s is there already, has no site, or there are too many", m.Name)
				}
			}
			known[m.Name] = true
			s.Workers = append(s.Workers, m)
		case "at":
			var a Action
			if a, err = parseAction(f[1:]); err == nil {
				err = a.aims(known)
			}
			s.Actions = append(s.Actions, a)
		default:
			err = fmt.Errorf("a line begins with seed, lost, places, site, worker, at, settle or #, not with %q", f[0])
		}
		if err != nil {
			return nil, bad("%v", err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	if len(s.Sites) == 0 {
		return nil, &ScenarioError{0, "there is no site"}
	}
	slices.SortStableFunc(s.Actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return s, nil
}

func parseTime(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d < 0 || d > maxScenarioTime) {
		err = fmt.Errorf("%s is not between 0 and %s", s, maxScenarioTime)
	}
	return d, err
}

func parseMachinery(f []string) (m Machinery, err error) {
	m.Name = f[0]
	args, err := parseArgs(f[1:], "cpu memory via")
	if err != nil {
		return m, err
	}
	number := func(key string, or int64) int64 {
		v := args[key]
		if v == "" {
			return or
		}
		n, e := strconv.ParseInt(v, 10, 64)
		if e != nil || n < 1 || n > 1<<24 {
			err = fmt.Errorf("%s=%s is no amount", key, v)
		}
		return n
	}
	if m.Via = args["via"]; m.Via != "" && m.Via != wire.CarrierMQTT {
		return m, fmt.Errorf("via=%s is not mqtt", m.Via)
	}
	m.CPU = skerry.MilliCPU(number("cpu", 2000))
	m.Memory = skerry.Bytes(number("memory", 4096)) * skerry.MiB
	return m, err
}

func parseArgs(f []string, allowed string) (map[string]string, error) {
	args := map[string]string{}
	for _, x := range f {
		k, v, ok := strings.Cut(x, "=")
		if !ok || v == "" || !slices.Contains(strings.Fields(allowed), k) {
			return nil, fmt.Errorf("%q is none of: %s", x, allowed)
		}
		if _, twice := args[k]; twice {
			return nil, fmt.Errorf("%s is given twice", k)
		}
		args[k] = v
	}
	return args, nil
}

func parseAction(f []string) (a Action, err error) {
	if len(f) < 3 {
		return a, fmt.Errorf("an action is: at TIME VERB TARGET and any KEY=VALUE")
	}
	if a.At, err = parseTime(f[0]); err != nil {
		return a, err
	}
	a.Verb, a.Target = f[1], f[2]
	v, ok := verbs[a.Verb]
	if !ok {
		return a, fmt.Errorf("%q is none of: %s", a.Verb, strings.Join(slices.Sorted(maps.Keys(verbs)), " "))
	}
	a.Args, err = parseArgs(f[3:], v.args)
	if err != nil {
		return a, err
	}
	return a, a.check()
}

// check looks at the values of the arguments.
func (a *Action) check() error {
	for k, v := range a.Args {
		var err error
		switch k {
		case "replicas", "cpu", "version", "nth", "port", "max":
			var n int
			if n, err = strconv.Atoi(v); err == nil && (n < 0 || n > 60_000) {
				err = fmt.Errorf("out of range")
			}
		case "priority":
			var n int
			if n, err = strconv.Atoi(v); err == nil && (n < -1000 || n > 1000) {
				err = fmt.Errorf("out of range")
			}
		case "rigidness", "share", "loss":
			var x float64
			if x, err = strconv.ParseFloat(v, 64); err == nil && !(x >= 0 && x <= 1) {
				err = fmt.Errorf("not between 0 and 1")
			}
		case "delay", "jitter":
			_, err = parseTime(v)
		case "slow":
			var d time.Duration
			if d, err = parseTime(v); err == nil && d > time.Minute {
				err = fmt.Errorf("more than a minute")
			}
		case "skew":
			var d time.Duration
			if d, err = time.ParseDuration(v); err == nil && d.Abs() > 100*365*24*time.Hour {
				err = fmt.Errorf("more than a century")
			}
		case "disconnect":
			if v != "run" {
				_, err = parseTime(v)
			}
		case "reconnect":
			err = oneOf(v, []string{spec.KeepOriginal, spec.KeepReplacement, spec.KeepBest})
		case "about":
			err = oneOf(v, lies)
		case "kind":
			err = oneOf(v, injections)
		case "shape":
			err = oneOf(v, shapes)
		case "fault":
			err = oneOf(v, faults)
		case "dir":
			err = oneOf(v, []string{"up", "down", "both", "alone"})
		case "parallel":
			var n int
			if n, err = strconv.Atoi(v); err == nil && (n < 1 || n > 100) {
				err = fmt.Errorf("out of range")
			}
		case "on", "force":
			err = oneOf(v, []string{"yes", "no"})
		case "owner", "at":
			err = skerry.CheckName(v)
		}
		if err != nil {
			return fmt.Errorf("%s=%s: %v", k, v, err)
		}
	}
	return nil
}

func oneOf(v string, list []string) error {
	if !slices.Contains(list, v) {
		return fmt.Errorf("none of: %s", strings.Join(list, " "))
	}
	return nil
}

// aims looks at the target.
func (a *Action) aims(known map[string]bool) error {
	kind := 'n'
	switch {
	case verbs[a.Verb].target == 'a':
		if err := skerry.CheckName(a.Target); err != nil {
			return err
		}
		for _, o := range []string{a.Args["owner"], a.Args["at"]} {
			if o != "" && !known[o] {
				return fmt.Errorf("there is no %q that could own an application", o)
			}
		}
		return nil
	case !known[a.Target]:
		return fmt.Errorf("there is no node %q", a.Target)
	case strings.Contains(a.Target, "/"):
		kind = 'w'
	case a.Target != "root":
		kind = 's'
	}
	if a.Args["fault"] == "rotten" && kind != 'w' {
		return fmt.Errorf("only a worker's store may rot: a root or site whose store does needs a backup or --rebuild")
	}
	want := rune(verbs[a.Verb].target)
	if want == 'n' || want == kind || want == 'c' && kind != 'n' {
		return nil
	}
	return fmt.Errorf("%s cannot be done to %s", a.Verb, a.Target)
}

// String gives an action as a line of the text form.
func (a Action) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %s %s %s", a.At, a.Verb, a.Target)
	for _, k := range slices.Sorted(maps.Keys(a.Args)) {
		fmt.Fprintf(&b, " %s=%s", k, a.Args[k])
	}
	return b.String()
}

// String gives the text form.
func (s *Scenario) String() string {
	var b strings.Builder
	for _, n := range s.Notes {
		fmt.Fprintln(&b, strings.TrimSpace("# "+n))
	}
	fmt.Fprintf(&b, "seed %d\n", s.Seed)
	if s.Places {
		fmt.Fprintf(&b, "places yes\n")
	}
	if s.Lost > 0 {
		fmt.Fprintf(&b, "lost %s\n", s.Lost)
	}
	for _, n := range s.Sites {
		fmt.Fprintf(&b, "site %s\n", n)
	}
	for _, m := range s.Workers {
		fmt.Fprintf(&b, "worker %s cpu=%d memory=%d", m.Name, m.CPU, m.Memory/skerry.MiB)
		if m.Via != "" {
			b.WriteString(" via=" + m.Via)
		}
		b.WriteByte('\n')
	}
	for _, a := range s.Actions {
		fmt.Fprintln(&b, a)
	}
	if s.Settle > 0 {
		fmt.Fprintf(&b, "settle %s\n", s.Settle)
	}
	return b.String()
}
