package sim

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/testenv"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/wire"
)

// Digests are the net under changes of structure: whoever moves code must leave every record, frame and timer as it is.
var (
	updateDigests = flag.Bool("update", false, "rewrite testdata/digests, after a change of behaviour")
	digestsLock   sync.Mutex         // held to read or write the file, and for
	worlds        = map[string]int{} // that a test has made so far
)

const (
	digestFile  = "testdata/digests"
	digestSeeds = 500
	digestHead  = `# What the cores of all tiers wrote, sent and waited for: a digest for each scenario, seed and test.
# A change of structure may not change this file. A change of behaviour rewrites it, in a commit of its own that says why:
#
#	make digests UPDATE=1
#
# name, steps, digest
`
)

// readDigests gives the lines of the file by name.
func readDigests(t testing.TB) map[string]string {
	t.Helper()
	data, err := os.ReadFile(digestFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(data)) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && !strings.HasPrefix(line, "#") {
			out[name] = rest
		}
	}
	return out
}

// compareDigest holds a run against its line in the file, or rewrites that.
func compareDigest(t testing.TB, name string, steps int, digest string) {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		return // floating point may be rounded otherwise: see docs/SIMULATOR.md
	}
	digestsLock.Lock()
	defer digestsLock.Unlock()
	known, is := readDigests(t), fmt.Sprintf("%d %s", steps, digest)
	switch was := known[name]; {
	case was == is:
		return
	case !*updateDigests && was == "":
		t.Errorf("%s has no line in %s: `make digests UPDATE=1` adds it", name, digestFile)
		return
	case !*updateDigests:
		t.Errorf("%s: steps and digest are %s, %s says %s: records, frames or timers changed. If that is meant, `make digests UPDATE=1` rewrites the file",
			name, is, digestFile, was)
		return
	}
	known[name] = is
	writeDigests(t, known)
}

func writeDigests(t testing.TB, known map[string]string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(digestHead)
	for _, k := range slices.Sorted(maps.Keys(known)) {
		fmt.Fprintf(&b, "%s %s\n", k, known[k])
	}
	if err := os.WriteFile(digestFile, []byte(b.String()), 0o644); err != nil {
		t.Error(err)
	}
}

// newWorld is New for a test whose worlds are part of the net, because no scenario does what they do. They are numbered in each test.
func newWorld(t testing.TB, seed uint64) *World {
	t.Helper()
	w := New(seed)
	w.trail = newTrail()
	digestsLock.Lock()
	defer digestsLock.Unlock()
	worlds[t.Name()]++
	name := fmt.Sprintf("%s#%d", t.Name(), worlds[t.Name()])
	t.Cleanup(func() {
		if !t.Failed() {
			compareDigest(t, name, w.steps, w.trail.String())
		}
		digestsLock.Lock()
		defer digestsLock.Unlock()
		delete(worlds, t.Name()) // it may be run again
	})
	return w
}

// ordered gives nodes by name: whatever a test does to a world in the order of a map, it does in another one the next time.
func ordered(nodes map[string]*Node) (out []*Node) {
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		out = append(out, nodes[name])
	}
	return out
}

// TestDigestsOfSeeds holds generated fleets against the file: 30 of them, all among long tests and with -update. TestScenarios does it for
// scenarios.
func TestDigestsOfSeeds(t *testing.T) {
	seeds := testenv.Times(30, digestSeeds)
	if *updateDigests {
		seeds = digestSeeds
	}
	var wg sync.WaitGroup
	next := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range next {
				r := Run(Generate(seed), RunOptions{})
				compareDigest(t, fmt.Sprintf("seed/%03d", seed), r.Steps, r.Trail)
			}
		})
	}
	for seed := range uint64(seeds) {
		next <- seed
	}
	close(next)
	wg.Wait()
}

// TestDigestFile: the file has no line of a scenario that is gone, and all seeds.
func TestDigestFile(t *testing.T) {
	seeds := 0
	for name := range readDigests(t) {
		if file, ok := strings.CutPrefix(name, "scenario/"); ok {
			if _, err := os.Stat("testdata/" + file); err != nil {
				t.Errorf("%s has a line of %s: %v", digestFile, name, err)
			}
		} else if strings.HasPrefix(name, "seed/") {
			seeds++
		}
	}
	if seeds != digestSeeds {
		t.Errorf("%s has %d seeds; want %d", digestFile, seeds, digestSeeds)
	}
}

// late wants to be woken a little later than the core in it.
type late struct{ core }

func (l late) NextWake() time.Time {
	at := l.core.NextWake()
	if !at.IsZero() {
		at = at.Add(1)
	}
	return at
}

// TestDigestsChange: one byte of a record, one of a frame, the order of two frames and a nanosecond of a timer each make another digest.
func TestDigestsChange(t *testing.T) {
	s := Generate(3)
	seen := map[string]string{Run(s, RunOptions{}).Trail: "nothing"}
	for name, plant := range map[string]func(*World){
		"a record": spoil[*cluster.Core](func(w *World, n *Node, fx *wire.Effects) {
			for i := range fx.Writes {
				if v := &fx.Writes[i]; strings.HasPrefix(v.Key, "place/") {
					v.Value = append(slices.Clone(v.Value), ' ')
				}
			}
		}),
		"a frame": spoil[*cluster.Core](func(w *World, n *Node, fx *wire.Effects) {
			for _, s := range fx.Sends {
				if m, ok := s.Msg.(*wire.Report); ok {
					m.Payload = append(slices.Clone(m.Payload), 0)
				}
			}
		}),
		"an order": spoil[*root.Core](func(w *World, n *Node, fx *wire.Effects) { slices.Reverse(fx.Sends) }),
		"a timer": func(w *World) {
			w.wrap = func(n *Node, c core) core { return late{c} }
		},
	} {
		digest := Run(s, RunOptions{plant: plant}).Trail
		if other := seen[digest]; other != "" {
			t.Errorf("%s and %s leave the same digest %s", name, other, digest)
		}
		seen[digest] = name
	}
}
