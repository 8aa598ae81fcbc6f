package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/testenv"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/view"
)

// play runs a scenario in its text form and gives the run's world; an invariant that does not hold ends the test.
func play(t *testing.T, text string, opt RunOptions) *World {
	t.Helper()
	s, err := ParseScenario(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	res := Run(s, opt)
	if res.Broken != nil {
		t.Fatal(res.Broken)
	}
	return res.World
}

// fleetText is three sites of four workers each, in places.
func fleetText() string {
	var b strings.Builder
	fmt.Fprintln(&b, "seed 11\nplaces yes")
	for _, site := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "site %s\n", site)
		for i := range 4 {
			fmt.Fprintf(&b, "worker %s/edgewk%d cpu=8000 memory=8192\n", site, i+1)
		}
	}
	return b.String()
}

// every writes an action down again and again, with what the number of the time puts into it.
func every(d time.Duration, times int, format string) string {
	var b strings.Builder
	for n := range times {
		fmt.Fprintf(&b, "at %s %s\n", time.Duration(n)*d+time.Minute, strings.ReplaceAll(format, "$", fmt.Sprint(n)))
	}
	return b.String()
}

// trustOf is what a site thinks of a worker, or the root of a site, at the end.
func trustOf(w *World, name string) *view.CreditView {
	if site, worker, ok := strings.Cut(name, "/"); ok {
		for _, v := range w.ClusterCore(site).Workers() {
			if string(v.Name) == worker {
				return v.Trust
			}
		}
		return nil
	}
	for _, v := range w.RootCore().Views().Sites() {
		if string(v.Name) == name {
			return v.Trust
		}
	}
	return nil
}

// What each lie comes to: quarantine where it comes again and again, and a lower rank at least. That no honest member is ever put in
// quarantine, that who is gets nothing, and that all that does not depend on the liar converges, the invariants tell.
func TestLiarsAreFoundOut(t *testing.T) {
	// Services come all the time, so that somebody is to be chosen.
	work := every(2*time.Minute, testenv.Times(10, 20), "apply app$ replicas=4 cpu=100 owner=a shape=spread")
	rootWork := every(2*time.Minute, 20, "apply app$ replicas=1 cpu=100 shape=service")
	for _, c := range []struct {
		name, liar, kind, what string
		quarantine             bool
	}{
		{"a worker that never runs anything", "a/edgewk1", "starts", work + "at 1s lie a/edgewk1 about=never\n", true},
		{"a worker that grows and grows", "a/edgewk1", "capacity", work + every(2*time.Minute, 4, "lie a/edgewk1 about=capacity"), true},
		{"a worker that grew once", "a/edgewk1", "capacity", "at 1s lie a/edgewk1 about=capacity\n", false},
		{"a worker that is elsewhere", "a/edgewk1", "place", work + "at 1s lie a/edgewk1 about=coordinates\n", true},
		{"a worker that uses what cannot be", "a/edgewk1", "use", "at 1s apply app0 replicas=4 owner=a shape=spread\n" + every(10*time.Minute, 1, "lie a/edgewk1 about=load"), true},
		{"a worker that speaks for others", "a/edgewk1", "tokens", "at 1s apply app0 replicas=8 owner=a shape=spread\n" + every(2*time.Minute, 6, "lie a/edgewk1 about=others"), true},
		{"a worker that repeats itself", "a/edgewk1", "replays", every(2*time.Minute, 4, "lie a/edgewk1 about=replay"), true},
		{"a site that never runs anything", "b", "starts", rootWork + "at 1s lie b about=never\n", true},
		{"a site that contradicts itself", "b", "counts", "at 1s apply app0 replicas=6 cpu=100 shape=service\nat 1s lie b about=counts\n", true},
		{"a site that repeats itself", "b", "replays", every(2*time.Minute, 4, "lie b about=replay"), true},
		{"a site that offers what it has not", "b", "refusals", "at 1s lie b about=capacity\n" + every(5*time.Minute, 6, "apply app$ replicas=1 cpu=30000 shape=service"), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// The end of what is asked for is the end of the scenario: what the liar has is looked at soon after.
			w := play(t, fleetText()+c.what+"settle 6m\n", RunOptions{})
			v := trustOf(w, c.liar)
			times := 0
			for _, e := range w.Events {
				if e.Reason == "WorkerQuarantined" || e.Reason == "ClusterQuarantined" {
					times++
				}
			}
			if v == nil || v.Rank >= 1 {
				t.Fatalf("nothing speaks against it: %+v", v)
			}
			if (times > 0) != c.quarantine {
				t.Errorf("in quarantine %d times: %+v", times, v)
			}
			found := false
			for _, m := range v.Marks {
				found = found || m.Kind == c.kind && m.Text != ""
			}
			if !found {
				t.Errorf("%s is not among %+v", c.kind, v.Marks)
			}
			// An operator undoes it.
			if site, worker, ok := strings.Cut(c.liar, "/"); ok {
				w.Do(w.Clusters[site], cluster.CordonWorker{Name: worker})
			} else {
				w.Do(w.Root, root.TrustCluster{Name: c.liar})
			}
			if v := trustOf(w, c.liar); v != nil {
				t.Errorf("after it was forgiven: %+v", v)
			}
		})
	}
}

// What a worker claims to have grown by is not given away: the site reckons with what it had, through restarts, until an
// operator says otherwise.
func TestBoastsAreNotBelieved(t *testing.T) {
	w := play(t, "seed 3\nsite a\nworker a/edgewk1 cpu=2000 memory=4096\nworker a/edgewk2 cpu=2000 memory=4096\n"+
		"at 1s lie a/edgewk1 about=capacity\nat 2s apply app0 owner=a cpu=1000 replicas=8 shape=service\nat 1m kill a\nat 70s start a\n", RunOptions{})
	promised := func() (worker, all skerry.MilliCPU) {
		for _, v := range w.ClusterCore("a").Workers() {
			if all += v.Reserved.CPU; v.Name == "edgewk1" {
				worker = v.Reserved.CPU
			}
		}
		return worker, all
	}
	if one, all := promised(); one > 2000 || all != 4000 {
		t.Errorf("%d of %d are promised on the one that boasts", one, all)
	}
	w.Do(w.Clusters["a"], cluster.CordonWorker{Name: "edgewk1"})
	w.Run(2 * time.Minute)
	if one, all := promised(); one <= 2000 || all != 8000 {
		t.Errorf("an operator believes it, and %d of %d are promised on it", one, all)
	}
}

// A worker whose link loses a fifth and takes a quarter of a second, and which needs twenty minutes for an image that others have at once, is
// slow and honest: hours of changes never put it in quarantine. What it does not get started is started elsewhere.
func TestBadNetworkIsNoLie(t *testing.T) {
	rounds := testenv.Times(1, 3)
	for seed := range uint64(testenv.Times(1, 2)) {
		text := fleetText() + "at 1s slow a/edgewk1 delay=250ms jitter=100ms loss=0.2\nat 1s slow b delay=250ms jitter=100ms loss=0.2\n" +
			every(7*time.Minute, 7*rounds, "apply app$ replicas=3 cpu=100 owner=a shape=spread") + every(11*time.Minute, 4*rounds, "apply far$ replicas=3 cpu=100 shape=service") +
			every(23*time.Minute, 2*rounds, "reset a/edgewk1") + every(31*time.Minute, 1+rounds, "slow a/edgewk2 delay=$0ms loss=0.2") + "settle 25m\n"
		w := play(t, strings.Replace(text, "seed 11", fmt.Sprint("seed ", 20+seed), 1), RunOptions{plant: func(w *World) {
			w.Machine.Pull = func(worker string) time.Duration {
				if worker == "a/edgewk1" || strings.HasPrefix(worker, "b/") {
					return 20 * time.Minute
				}
				return 0
			}
		}})
		for _, v := range w.ClusterCore("a").Workers() {
			if v.Trust != nil && v.Trust.Quarantine != "" {
				t.Errorf("%s: %+v", v.Name, v.Trust)
			}
		}
	}
}
