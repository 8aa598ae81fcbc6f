//go:build linux

package worker

import (
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

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

// What ends goes on while a client waits for its answer, and does not wait for one that keeps an answered connection open.
func TestAwaitAnswers(t *testing.T) {
	t.Parallel()
	netns, to := echoElsewhere(t)
	const id = "web-1"
	n := newAttachments(&fakeNet{})
	n.have[id] = wire.Attachment{NetNS: netns}
	s := &Server{net: n}
	s.opt.Log = slog.New(slog.DiscardHandler)
	connect := func() net.Conn {
		t.Helper()
		c, err := dialIn(t.Context(), netns, to)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	ask := func(c net.Conn) {
		t.Helper()
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(c net.Conn) {
		t.Helper()
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	const quiet = 300 * time.Millisecond
	ends := func() <-chan struct{} {
		ended := make(chan struct{})
		go func() {
			s.awaitQuiet(t.Context(), core.AwaitQuiet{ID: id, For: quiet, Most: time.Hour})
			close(ended)
		}()
		return ended
	}
	goesOn := func(what string, ended <-chan struct{}) {
		t.Helper()
		select {
		case <-ended:
			t.Fatalf("it was taken for quiet %s", what)
		case <-time.After(5 * quiet):
		}
	}

	first := connect()
	ended := ends()
	goesOn("while a client had sent nothing yet", ended)
	ask(first)
	answered(first)
	<-ended // with the connection open

	// The server has one client at a time.
	second := connect()
	ask(second)
	ended = ends()
	goesOn("before a client was accepted whose request was there", ended)
	first.Close()
	answered(second)
	<-ended
}

// A connection that the instance made itself is no client's, whatever came from there last.
func TestClients(t *testing.T) {
	socket := func(state uint8, port uint16, sent, sentAgo, receivedAgo uint32) []byte {
		msg := make([]byte, 72)
		msg[1] = state
		binary.BigEndian.PutUint16(msg[4:], port)
		info := unix.TCPInfo{Data_segs_out: sent, Last_data_sent: sentAgo, Last_data_recv: receivedAgo}
		value := unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))
		return append(msg, nl.NewRtAttr(netlink.INET_DIAG_INFO, value).Serialize()...)
	}
	listener := socket(netlink.TCP_LISTEN, 80, 0, 0, 0)
	silent := socket(netlink.TCP_ESTABLISHED, 80, 0, 10, 10)
	for _, c := range []struct {
		what   string
		socket []byte
		want   bool
	}{
		{"nobody", nil, false},
		{"nothing was sent yet", silent, true},
		{"a request came", socket(netlink.TCP_ESTABLISHED, 80, 7, 20, 10), true},
		{"it was answered", socket(netlink.TCP_ESTABLISHED, 80, 7, 10, 20), false},
		{"it was answered at once", socket(netlink.TCP_ESTABLISHED, 80, 7, 10, 10), false},
		{"the client has ended it", socket(netlink.TCP_CLOSE_WAIT, 80, 7, 20, 10), false},
		{"its own", socket(netlink.TCP_ESTABLISHED, 40000, 7, 20, 10), false},
		{"not told", silent[:72], false},
		{"of a kernel that tells less", append(silent[:72:72], nl.NewRtAttr(netlink.INET_DIAG_INFO, make([]byte, 104)).Serialize()...), false},
		{"cut short", silent[:100], false},
		{"hardly anything", silent[:5], false},
	} {
		var seen clients
		seen.see(listener)
		if seen.see(c.socket); seen.wait != c.want {
			t.Errorf("%s: a client waits: %t", c.what, seen.wait)
		}
	}
}

func TestParseTCP(t *testing.T) {
	const sample = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm PassiveOpens AttemptFails CurrEstab\nTcp: 1 34 0 2\n" +
		"Udp: InDatagrams\nUdp: 5\n"
	if n, err := parseTCP([]byte(sample)); n != (tcpCounts{34, 2}) || err != nil {
		t.Errorf("%+v, %v", n, err)
	}
	for _, bad := range []string{"", "Tcp: PassiveOpens CurrEstab\n", "Tcp: PassiveOpens CurrEstab\nTcp: 1\n",
		"Tcp: PassiveOpens CurrEstab\nTcp: 1 x\n", "Tcp: PassiveOpens\nTcp: 1\n"} {
		if n, err := parseTCP([]byte(bad)); err == nil {
			t.Errorf("%q gives %+v", bad, n)
		}
	}
	text, err := os.ReadFile("/proc/net/snmp")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parseTCP(text); err != nil {
		t.Error(err)
	}
}
