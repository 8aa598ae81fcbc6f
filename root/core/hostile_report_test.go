package core

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/wire"
)

// report has a site send an aggregate, and gives how long the root took for it.
func (r *hostileRoot) report(site string, report *wire.ClusterReport) time.Duration {
	r.t.Helper()
	msg := &wire.Report{Kind: wire.ReportCluster, Payload: wire.New().Marshal(report)}
	begin := time.Now()
	r.step(ChildFrame{Name: site, Msg: msg})
	return time.Since(begin)
}

// settled has a site confirm all that it was given.
func (r *hostileRoot) settled(site string) {
	r.t.Helper()
	child := r.c.Children.Get(site)
	r.step(ChildFrame{Name: site, Msg: &wire.SetAck{Set: members.Desired, Incarnation: child.Desired.Incarnation(), Gen: child.Desired.Gen(),
		Digest: child.Desired.Digest()}})
	if !child.Settled() {
		r.t.Fatalf("site %s is not settled: connected %t, synced %t, settled %t", site, child.Connected, child.Synced, child.Desired.Settled())
	}
}

// One report of a site takes no longer than its length: while the root reads it, nobody else is answered.
func TestReportThatTakesLong(t *testing.T) {
	r := newHostileRoot(t, "liar")
	own := r.apply("own", "", "liar")
	items := map[string][]byte{}
	for n := range 20_000 {
		id := skerry.InstanceID(fmt.Sprintf("ghost-r%08d", n))
		items[wire.AssignmentKey(id)] = wire.New().Marshal(&wire.Observation{ID: id, State: skerry.Terminated})
	}
	r.say("liar", items)
	r.settled("liar")
	report := &wire.ClusterReport{Services: make([]wire.ServiceQoS, 3_000)}
	for n := range report.Services {
		report.Services[n] = wire.ServiceQoS{Service: own, Ready: 2}
	}
	if took := r.report("liar", report); took > 2*time.Second {
		t.Errorf("a report with the same service %d times took %s", len(report.Services), took)
	}
	for n := range report.Services {
		report.Services[n].Service.Service = fmt.Sprint("s", n)
	}
	if took := r.report("liar", report); took > 2*time.Second {
		t.Errorf("a report of %d services took %s", len(report.Services), took)
	}
}

// A site that reports other classes of workers each time does not have the root remember all of them.
func TestClassesAreForgotten(t *testing.T) {
	r := newHostileRoot(t, "liar", "other")
	for round := range 20 {
		report := &wire.ClusterReport{}
		for n := range 2_000 {
			report.Classes = append(report.Classes, wire.ClassAggregate{Class: wire.Class{Arch: fmt.Sprint("arch", round, "-", n)}, Workers: 1})
		}
		r.report("liar", report)
	}
	r.report("other", &wire.ClusterReport{Classes: []wire.ClassAggregate{{Class: wire.Class{Arch: "amd64"}, Workers: 1}}})
	if n := r.c.fed.Classes(); n > 2*wire.MaxClasses+1 {
		t.Errorf("%d classes are remembered, want at most %d of each of two sites, and those before", n, wire.MaxClasses)
	}
	r.step(ChildDown{Name: "liar"})
	r.step(RemoveCluster{Name: "liar"})
	if n := r.c.fed.Classes(); n != 1 {
		t.Errorf("%d classes are remembered once the site is gone, want that of the other one", n)
	}
}

// A site that reports very many instances that the root does not know, or changes of applications that it does not have, fills neither the
// events nor the store.
func TestStrangersOfASite(t *testing.T) {
	r := newHostileRoot(t, "liar")
	items := map[string][]byte{}
	for n := range 5_000 {
		id := skerry.InstanceID(fmt.Sprintf("ghost-r%08d", n))
		items[wire.AssignmentKey(id)] = wire.New().Marshal(&wire.Observation{ID: id, State: skerry.Running})
	}
	r.say("liar", items)
	if n := r.told("UnknownInstance"); n == 0 || n > strangersNamed {
		t.Errorf("%d events tell of unknown instances, want some and at most %d", n, strangersNamed)
	}
	clear(items)
	for n := range 5_000 {
		app := skerry.AppKey{Namespace: "none", Name: fmt.Sprint("a", n)}
		items[wire.AmendmentKey(app)] = wire.New().Marshal(&wire.Amendment{App: app, Seq: 1})
	}
	r.say("liar", items)
	if n := r.told("AmendmentRefused"); n == 0 || n > 2*strangersNamed {
		t.Errorf("%d events tell of changes to what it does not hold, want some and at most %d", n, 2*strangersNamed)
	}
	answered := 0
	for key := range r.kv {
		if strings.Contains(key, "/amended/") {
			answered++
		}
	}
	if answered > maxRefusedAmendments {
		t.Errorf("%d answers are kept, want at most %d", answered, maxRefusedAmendments)
	}
}

// What speaks against a site is told in few words, whatever it calls its services: the words come into records of others.
func TestLongNamesInEvidence(t *testing.T) {
	r := newHostileRoot(t, "liar")
	long := strings.Repeat("x", 700<<10)
	for range 5 {
		r.report("liar", &wire.ClusterReport{Services: []wire.ServiceQoS{{Service: skerry.ServiceKey{Service: long}, Ready: -1}}})
		r.now = r.now.Add(2 * time.Minute)
	}
	if r.told("Implausible") == 0 {
		t.Fatal("nothing was counted against it")
	}
	for key, value := range r.kv {
		if len(value) > 100<<10 {
			t.Errorf("record %s has %d bytes", key, len(value))
		}
	}
}

// A site that claims very many addresses, all of them others', takes no longer for it than one that claims those that it may have.
func TestManyExtents(t *testing.T) {
	e := newExtents(wire.New())
	var fx wire.Effects
	info := wire.SiteInfo{Name: "liar"}
	for n := range 8_000 {
		site := fmt.Sprint("s", n/4)
		e.sites[prefixNumber(n)] = site
	}
	for range 15 {
		for n := range 4_000 {
			info.Extents = append(info.Extents, prefixNumber(n))
		}
	}
	begin := time.Now()
	h := e.introduce("liar", wire.New().Marshal(&info), &fx)
	if took := time.Since(begin); took > 4*time.Second || len(h.refused) == 0 {
		t.Errorf("%d prefixes of others took %s, and %d are refused", len(info.Extents), took, len(h.refused))
	}
}

func prefixNumber(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n >> 8), byte(n), 0}), 24)
}

// What a site tells of others is looked at whenever anything of any site changes, so that it may tell no more than can be.
func TestSiteThatTellsTooMuch(t *testing.T) {
	r := newHostileRoot(t, "liar")
	items := map[string][]byte{}
	for n := range maxTold + 10_000 {
		items[fmt.Sprint("to/none/", n)] = nil
	}
	r.say("liar", items)
	if n := len(r.c.relations.told["liar"]); n > maxTold {
		t.Errorf("%d items are looked at, want at most %d", n, maxTold)
	}
	if n := r.c.relations.counts[refusedTold]; n < 10_000 {
		t.Errorf("%d are counted as refused, want 10000", n)
	}
}
