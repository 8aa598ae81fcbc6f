package volumes

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

var update = flag.Bool("update", false, "rewrite the scenarios")

// story is a site of which a scenario is told: each line that begins with ">" has something happen, and what follows from it comes below.
//
//	> at TIME                  the clock is set
//	> pass DURATION            schedules are followed for so long
//	> wants N KEEP SCHEDULE    the service of replica N wants a schedule; without one: none
//	> runs N WORKER            replica N runs there
//	> ends N                   it is gone, and its volumes are kept
//	> fails REASON             from now on each snapshot fails; without a reason: none does
//	> hangs                    from now on no snapshot ends
//	> manual N                 somebody takes a snapshot
//	> restores N SNAPSHOT      replica N is being restored from a snapshot
//	> restored N               that has ended
//	> lost WORKER              the worker is removed
//	> of SNAPSHOT ORG          it is another organisation's
//	> restart                  the orchestrator is started again
//	> list                     the snapshots
//	> show N                   what is shown of a schedule
type story struct {
	*shed
	t      *testing.T
	now    time.Time
	fails  string
	hangs  bool
	number int
	out    strings.Builder
}

func (s *story) say(format string, args ...any) { fmt.Fprintf(&s.out, format+"\n", args...) }

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("01-02 15:04:05")
}

func replicaOf(t *testing.T, text string) spec.VolumeClaim {
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec.VolumeClaim{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}, Ordinal: n}
}

func (s *story) take(v spec.VolumeClaim, scheduled bool) spec.SnapshotID {
	s.number++
	snap := spec.Snapshot{ID: spec.SnapshotID(fmt.Sprint("s", s.number)), At: s.now, State: spec.SnapshotTaking, Scheduled: scheduled,
		Org: "acme", Worker: skerry.WorkerName(s.at[v])}
	snap.SetClaim(v)
	s.claims.PutSnapshot(snap)
	if s.hangs {
		return snap.ID
	}
	snap.State = spec.SnapshotReady
	s.claims.PutSnapshot(snap)
	return snap.ID
}

// look follows the schedules at one moment.
func (s *story) look() {
	for _, v := range s.claims.Due(s.now) {
		switch {
		case s.fails != "":
			first := s.claims.Missed(v, s.now, s.fails)
			s.say("%s %d: missed, tried again %s; said: %v", clock(s.now), v.Ordinal, clock(s.claims.all[v].Routine.Again), first)
		case s.hangs:
			s.say("%s %d: begun %s", clock(s.now), v.Ordinal, s.take(v, true))
		default:
			id := s.take(v, true)
			var gone []string
			for _, old := range s.claims.Taken(v, id, s.now) {
				s.claims.DropSnapshot(old.ID)
				gone = append(gone, string(old.ID))
			}
			s.say("%s %d: %s; deleted: %s", clock(s.now), v.Ordinal, id, strings.Join(gone, " "))
		}
	}
}

// pass lets time pass, and looks only when that was asked for.
func (s *story) pass(d time.Duration) {
	end := s.now.Add(d)
	for range 100_000 {
		at := s.claims.NextLook()
		if at.IsZero() || at.After(end) {
			s.now = end
			return
		}
		if at.After(s.now) {
			s.now = at
		}
		s.look()
	}
	s.t.Fatal("it looks without end")
}

func (s *story) restart() {
	old, names := s.records, s.claims
	s.claims = New(s)
	for key, value := range old {
		load := s.claims.Load
		if strings.HasPrefix(key, SnapshotPrefix) {
			load = s.claims.LoadSnapshot
		}
		if err := load([]byte(value)); err != nil {
			s.t.Fatal(key, err)
		}
	}
	if len(names.all) != len(s.claims.all) {
		s.t.Fatalf("%d claims of %d are read", len(s.claims.all), len(names.all))
	}
	s.claims.Start()
	for _, snap := range s.claims.Unfinished() {
		s.claims.Missed(snap.Claim(), s.now, "restarted meanwhile")
		s.say("given up: %s", snap.ID)
	}
	s.reserved = map[string]skerry.Bytes{}
}

func (s *story) run(line string) {
	word, rest, _ := strings.Cut(line, " ")
	args := strings.Fields(rest)
	switch word {
	case "at":
		at, err := time.Parse(time.RFC3339, rest)
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = at
	case "pass":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		s.pass(d)
	case "wants":
		v := replicaOf(s.t, args[0])
		if delete(s.routines, v); len(args) > 1 {
			keep, err := strconv.Atoi(args[1])
			if err != nil {
				s.t.Fatal(err)
			}
			s.routines[v] = Routine{Schedule: strings.Join(args[2:], " "), Keep: keep}
		}
		s.claims.Touch()
	case "runs":
		s.shed.run(s.t, replicaOf(s.t, args[0]), args[1])
	case "ends":
		v := replicaOf(s.t, args[0])
		s.owned[v] = true
		s.end(v)
		delete(s.routines, v)
	case "fails":
		s.fails, s.hangs = rest, false
	case "hangs":
		s.hangs = true
	case "manual":
		s.say("%s", s.take(replicaOf(s.t, args[0]), false))
	case "restores":
		s.claims.Begin(replicaOf(s.t, args[0]), "acme", 0, spec.SnapshotID(args[1]))
	case "restored":
		s.claims.End(replicaOf(s.t, args[0]))
	case "lost":
		for _, g := range s.claims.Forget(args[0]) {
			s.say("%s is lost", g.Key())
		}
	case "of":
		snap := *s.claims.Snapshot(spec.SnapshotID(args[0]))
		snap.Org = args[1]
		s.claims.PutSnapshot(snap)
	case "restart":
		s.restart()
	case "list":
		for _, snap := range s.claims.Snapshots() {
			s.say("%s of %d, %s, scheduled: %v, %s", snap.ID, snap.Replica, clock(snap.At), snap.Scheduled, snap.State)
		}
	case "show":
		if r := s.claims.Routines()[replicaOf(s.t, args[0])]; r == nil {
			s.say("no schedule")
		} else {
			s.say("%s, %d of %d; last %s, next %s; failed %s: %q, again %s",
				r.Schedule, r.Kept, r.Keep, clock(r.Last), clock(r.Next), clock(r.Failed), r.Reason, clock(r.Again))
		}
	default:
		s.t.Fatalf("there is no %q", word)
	}
	s.settle(s.t)
}

// TestSchedules tells what becomes of snapshots on a schedule.
func TestSchedules(t *testing.T) {
	files, err := filepath.Glob("testdata/schedules/*.txt")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			s := &story{shed: newShed(), t: t, now: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
			for line := range strings.Lines(string(text)) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") || line == "" {
					s.say("%s", line)
				} else if cmd, ok := strings.CutPrefix(line, "> "); ok {
					s.say("%s", line)
					s.run(cmd)
				}
			}
			if *update {
				if err := os.WriteFile(name, []byte(s.out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got, want := strings.Split(s.out.String(), "\n"), strings.Split(string(text), "\n"); !slices.Equal(got, want) && !*update {
				t.Errorf("it goes otherwise (-update rewrites it):\n%s", s.out.String())
			}
		})
	}
}

// TestOwnersHearOfSchedules: an owner that says something of volumes has what their schedule has come to reported, also where the site had
// reported nothing because they were another's, or its own, until then.
func TestOwnersHearOfSchedules(t *testing.T) {
	s, v := newShed(), replica(1)
	s.owned[v] = true
	s.run(t, v, "w1")
	s.claims.Changed()
	s.claims.Touch()
	s.settle(t)
	if s.claims.Changed() {
		t.Error("nothing has changed, and all is reported")
	}
	s.claims.Told()
	s.settle(t)
	if !s.claims.Changed() {
		t.Error("who owns it now hears nothing")
	}
}
