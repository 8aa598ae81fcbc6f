package ctl

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0s"}, {0, "0s"}, {59 * time.Second, "59s"}, {119 * time.Second, "119s"}, {2 * time.Minute, "2m"}, {200 * time.Second, "3m20s"},
		{45 * time.Minute, "45m"}, {3*time.Hour + 5*time.Minute, "3h5m"}, {30 * time.Hour, "30h"}, {50 * time.Hour, "2d2h"}, {20 * 24 * time.Hour, "20d"}, {3 * 365 * 24 * time.Hour, "3y"},
	} {
		if got := span(c.d); got != c.want {
			t.Errorf("span(%s) = %s, want %s", c.d, got, c.want)
		}
	}
}

func TestSize(t *testing.T) {
	for b, want := range map[skerry.Bytes]string{0: "0", 512: "512", 64 * skerry.MiB: "64Mi", 1536: "1.5Ki", 4_900_000: "4.7Mi", 123456789: "118Mi", 22 * skerry.GiB: "22Gi"} {
		if got := size(b); got != want {
			t.Errorf("size(%d) = %s, want %s", b, got, want)
		}
	}
}

func TestCores(t *testing.T) {
	for m, want := range map[skerry.MilliCPU]string{0: "0", 250: "250m", 1000: "1", 1500: "1500m", 12500: "12.5"} {
		if got := cores(m); got != want {
			t.Errorf("cores(%d) = %s, want %s", m, got, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2030, 5, 10, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Time{
		"": {}, "5m": now.Add(-5 * time.Minute), "1d": now.Add(-24 * time.Hour), "2w": now.Add(-14 * 24 * time.Hour), "1.5h": now.Add(-90 * time.Minute),
		"2030-05-09T01:02:03Z": time.Date(2030, 5, 9, 1, 2, 3, 0, time.UTC), "2030-05-09 01:02:03": time.Date(2030, 5, 9, 1, 2, 3, 0, time.UTC), "2030-05-09": time.Date(2030, 5, 9, 0, 0, 0, 0, time.UTC),
	} {
		got, err := parseSince(s, now)
		if err != nil || !got.Equal(want) {
			t.Errorf("parseSince(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"yesterday", "-5m", "5", "xd", "-1d", "999999999d"} {
		if got, err := parseSince(s, now); err == nil {
			t.Errorf("parseSince(%q) = %v", s, got)
		}
	}
}

func TestTable(t *testing.T) {
	tab := table{head: []string{"NAME", "STATE"}, wide: []string{"WHERE"}}
	tab.add("x/a", []string{"a", "up"}, "here")
	tab.add("x/bcd", []string{"bcd", ""}, "a\x1b[31mb\nc")
	var b bytes.Buffer
	tab.print(&b, true, true)
	want := "NAME   STATE   WHERE\na      up      here\nbcd    -       a [31mb c\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	tab.print(&b, false, false)
	if got := b.String(); strings.Contains(got, "NAME") || strings.Contains(got, "here") {
		t.Errorf("got\n%s", got)
	}
}

// What a watch tells later stands below the heading of before, and what is not shown does not count as a change.
func TestPrintChanged(t *testing.T) {
	var out, gone bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	cmd.SetErr(&gone)
	r := &resource{names: []string{"instance"}, head: []string{"NAME", "STATE", "AGE"}, wide: []string{"CPU"}}
	told := shown{last: map[string]string{}}
	at := func(name, state, age, cpu string) item {
		return item{name: name, cells: []string{name, state, age}, wide: []string{cpu}}
	}
	for _, items := range [][]item{
		nil,
		{at("long-name", "Starting", "1s", "0")},
		{at("long-name", "Starting", "2s", "100m")},
		{at("long-name", "Up", "3s", "100m"), at("b", "Up", "1s", "0")},
		{at("b", "Up", "2s", "0")},
	} {
		if err := printChanged(cmd, r, &getFlags{}, items, &told); err != nil {
			t.Fatal(err)
		}
	}
	want := "NAME        STATE      AGE\nlong-name   Starting   1s\nlong-name   Up         3s\nb           Up         1s\n"
	if out.String() != want || gone.String() != "instance long-name is deleted\n" {
		t.Errorf("got\n%s%swant\n%s", out.String(), gone.String(), want)
	}
}

func TestMatchLabels(t *testing.T) {
	labels := map[string]string{"a": "1", "b": "2"}
	for sel, want := range map[string]bool{"": true, "a=1": true, "a=1,b=2": true, "a=2": false, "c=1": false} {
		if got, err := matchLabels(labels, sel); err != nil || got != want {
			t.Errorf("%q: %v %v", sel, got, err)
		}
	}
	for _, sel := range []string{"a", "=1", "a=1,=2", "a==1", "a!=1", "a =1", " a=1", "a=1, b=2"} {
		if got, err := matchLabels(labels, sel); err == nil || !strings.Contains(err.Error(), "is not KEY=VALUE") {
			t.Errorf("selector %q: got %v, %v, want it refused", sel, got, err)
		}
	}
}

func TestFindResource(t *testing.T) {
	for name, want := range map[string]string{"apps": "app", "svc": "service", "i": "instance", "cl": "cluster", "w": "worker", "ns": "namespace", "ev": "event", "audit": "audit"} {
		if r, err := findResource(name); err != nil || r.singular() != want {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	_, err := findResource("instanse")
	if e := skerry.AsError(err); e == nil || !strings.HasPrefix(e.Hint, "did you mean") {
		t.Errorf("got %v", err)
	}
	seen := map[string]bool{}
	for _, r := range resources() {
		for _, n := range r.names {
			if seen[n] {
				t.Errorf("%q names two kinds", n)
			}
			seen[n] = true
		}
	}
}

func TestParsePorts(t *testing.T) {
	for s, want := range map[string]portPair{"80": {80, 80}, "9000:80": {9000, 80}, "0:80": {0, 80}} {
		if got, err := parsePorts(s); err != nil || got != want {
			t.Errorf("%q: %v %v", s, got, err)
		}
	}
	for _, s := range []string{"", "0", "x", "80:", ":80", "70000", "1:2:3", "-1:80"} {
		if got, err := parsePorts(s); err == nil {
			t.Errorf("%q gave %v", s, got)
		}
	}
}

func TestImageNames(t *testing.T) {
	for in, want := range map[string]string{"web:1": "skerry.local/web:1", "shop/web": "skerry.local/shop/web:latest", "registry.example:5000/a/b:2": "registry.example:5000/a/b:2", "localhost/a:1": "localhost/a:1"} {
		got, err := fullName(in)
		if err != nil || got != want {
			t.Errorf("%q: %q %v, want %q", in, got, err, want)
		}
	}
	if _, err := fullName("Bad Name"); err == nil {
		t.Error("a bad name was taken")
	}
	if got := shortName("skerry.local/web:1"); got != "web:1" {
		t.Error(got)
	}
}

// What speaks against a member, and how often it reports, in words.
func TestDescribeTrustAndUpdates(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var out bytes.Buffer
	p := newPairs(&out)
	describeTrust(p, nil, now)
	describeTrust(p, &view.CreditView{Rank: 0.4, Quarantine: "it grew (3 times)", Since: now.Add(-time.Minute), Until: now.Add(time.Hour),
		Marks: []view.CreditMark{{Kind: "capacity", Text: "it grew", Marks: 3, Last: now.Add(-time.Minute)}}}, now)
	p.flush()
	for _, want := range []string{"In quarantine:", "until", "or until `skerry uncordon`", "40 % of its score", "capacity: it grew (3 times, last"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	w := &view.WorkerView{Connected: true, Trust: &view.CreditView{Quarantine: "it grew"}, Refusing: "in quarantine: it grew"}
	if s := workerStatusText(w); s != "Connected,Quarantined" {
		t.Error(s)
	}
	for want, v := range map[string]*view.UpdatesView{
		"":                                  nil,
		"nothing changes":                   {Why: wire.PaceIdle, Gain: 1},
		"about every 1m0s: nothing changes": {EveryMs: 60_000, Why: wire.PaceIdle, Gain: 1},
		"about every 2.5s: a limit is near; changes count 8 times as much, because of the memory of default/shop/web": {EveryMs: 2504, Why: wire.PaceLimit, Gain: 8, Near: "the memory of default/shop/web"},
		"about every 3s: something else": {EveryMs: 3000, Why: "something else", Gain: 1},
	} {
		if got := updatesText(v); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
