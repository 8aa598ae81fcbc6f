package lab

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
)

const writesLab = `
name: NAME
hosts:
- {name: root, role: root}
- {name: site, role: cluster}
- {name: one, role: worker}
`

const writesApp = `
apiVersion: skerry/v1
kind: Application
metadata: {name: shop}
spec:
  services:
  - name: web
    image: demo/kit:1
    args: [serve, ":80", /VERSION]
    resources: {cpu: 20m, memory: 32Mi}
    terminationGrace: 1s
    update: {healthyTime: 0s}
`

var serving = regexp.MustCompile(`serving /v(\d+) on`)

// writer makes numbered changes one after the other, and keeps which were acknowledged.
type writer struct {
	change func(n int) error
	tried  int
	acked  []int
}

func (w *writer) run(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		w.tried++
		if w.change(w.tried) == nil {
			w.acked = append(w.acked, w.tried)
		}
	}
}

// TestWritesOverBadLinks changes things at a root and at its site while the packets of the links between root, site and worker come late,
// twice and out of order, and each role is killed in turn. Every change that was acknowledged is there afterwards, and the version of an
// application that was acknowledged last, or a later one, is what runs.
func TestWritesOverBadLinks(t *testing.T) {
	testenv.Long(t, "TestNoFalseAlarm, and TestKillAnyRole of package e2e")
	s := newSite(t, writesLab, strings.ReplaceAll(writesApp, "VERSION", "v0"))
	l := s.l
	delay, some := 30*time.Millisecond, Share(0.1)
	for _, sides := range [][]string{{"root", "site"}, {"site", "one"}} {
		if err := l.SetLink(t.Context(), sides, LinkChange{Delay: &delay, Duplicate: &some, Reorder: &some}); err != nil {
			t.Fatal(err)
		}
	}
	secret := func(host string) func(int) error {
		return func(n int) error {
			_, err := s.at(host, "", "secret", "create", fmt.Sprintf("w%d", n), "--from-literal", fmt.Sprintf("n=%d", n))
			return err
		}
	}
	atRoot, atSite := &writer{change: secret("root")}, &writer{change: secret("site")}
	versions := &writer{change: func(n int) error {
		_, err := s.at("root", strings.ReplaceAll(writesApp, "VERSION", fmt.Sprintf("v%d", n)), "apply", "-f", "-", "--no-wait")
		return err
	}}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for _, w := range []*writer{atRoot, atSite, versions} {
		all.Go(func() { w.run(stop) })
	}
	for n := range testenv.Times(3, 12) {
		s.killAndStart([]string{"root", "site", "one"}[n%3])
	}
	close(stop)
	all.Wait()
	for host, w := range map[string]*writer{"root": atRoot, "site": atSite} {
		list := strings.Fields(string(s.must(host, "", "secret", "ls")))
		lost := slices.DeleteFunc(slices.Clone(w.acked), func(n int) bool { return slices.Contains(list, fmt.Sprintf("w%d", n)) })
		t.Logf("%s: %d of %d changes acknowledged", host, len(w.acked), w.tried)
		if len(lost) > 0 || len(w.acked) < 10 {
			t.Errorf("%s: of %d acknowledged changes %v are lost", host, len(w.acked), lost)
		}
	}
	if len(versions.acked) == 0 {
		t.Fatal("no version was acknowledged")
	}
	last := versions.acked[len(versions.acked)-1]
	t.Logf("%d of %d versions acknowledged, the last is %d", len(versions.acked), versions.tried, last)
	s.must("root", "", "wait", "shop", "--timeout", "3m")
	runs := -1
	s.await("the last version runs", func() bool {
		out, err := s.tryAt("root", "", "sh", "-c", l.Binary+" logs shop/web 2>&1") // it logs to its standard error
		list := serving.FindAllSubmatch(out, -1)
		if err != nil || len(list) != 1 { // those of the version before may still be there
			return false
		}
		runs, err = strconv.Atoi(string(list[0][1]))
		return err == nil
	})
	if runs < last || runs > versions.tried {
		t.Errorf("version %d runs; %d was acknowledged last, of %d", runs, last, versions.tried)
	}
}
