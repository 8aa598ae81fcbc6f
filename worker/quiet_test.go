//go:build linux

package worker

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// What ends goes on while clients, who have not been told yet, connect to it.
func TestAwaitQuiet(t *testing.T) {
	t.Parallel()
	netns, to := echoElsewhere(t)
	const id = "web-1"
	n := newAttachments(&fakeNet{})
	n.have[id] = wire.Attachment{NetNS: netns}
	s := &Server{net: n}
	s.opt.Log = slog.New(slog.DiscardHandler)
	const quiet = 2 * time.Second
	connect := func() {
		t.Helper()
		c, err := dialIn(t.Context(), netns, to)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	connect() // before the first look, which would find nobody
	ended := make(chan time.Time, 1)
	go func() {
		s.awaitQuiet(t.Context(), core.AwaitQuiet{ID: id, For: quiet, Most: time.Hour})
		ended <- time.Now()
	}()
	var last time.Time
	for range 40 {
		if d := time.Since(last); !last.IsZero() && d > quiet/2 {
			t.Skip(&testenv.Unsupported{What: "connecting every tenth of a second", Why: "the machine stood still for " + d.String()})
		}
		connect()
		last = time.Now()
		time.Sleep(quiet / 30)
	}
	if at := <-ended; at.Before(last) {
		t.Errorf("it was taken for quiet %s before somebody connected", last.Sub(at))
	}
	// Whatever they do, it ends: so does one whose namespace is gone, or that has none.
	for _, a := range []wire.Attachment{{NetNS: netns}, {NetNS: "/none"}, {}} {
		n.have[id] = a
		began := time.Now()
		s.awaitQuiet(t.Context(), core.AwaitQuiet{ID: id, Least: 50 * time.Millisecond, For: time.Hour, Most: 100 * time.Millisecond})
		if d := time.Since(began); d < 50*time.Millisecond {
			t.Errorf("%+v: it ended after %s", a, d)
		}
	}
}

func TestPassiveOpens(t *testing.T) {
	const sample = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 12 34\nUdp: InDatagrams\nUdp: 5\n"
	if n, err := passiveOpens([]byte(sample)); n != 34 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"", "Tcp: PassiveOpens\n", "Tcp: PassiveOpens\nTcp:\n", "Tcp: PassiveOpens\nTcp: x\n", "Tcp: ActiveOpens\nTcp: 1\n"} {
		if n, err := passiveOpens([]byte(bad)); err == nil {
			t.Errorf("%q gives %d", bad, n)
		}
	}
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := passiveOpens(text); err != nil {
		t.Error(err)
	}
}
