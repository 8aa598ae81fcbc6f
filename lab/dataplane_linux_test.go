package lab

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry/overlay"
)

// What workers run must stay where it is in these two tests while their agents are dead: at 60 ms a request and with busy
// processors, forty take longer than a cluster waits by default.

// TestOverlayMixed has workers that handle packets by nftables in one site with one that does so by eBPF.
func TestOverlayMixed(t *testing.T) {
	by := "--dataplane, nftables]"
	text := strings.Replace(overlayLab, "{name: a, role: worker, args: [--probe-every, 40ms]", "{name: a, role: worker, args: [--probe-every, 40ms, "+by, 1)
	text = strings.Replace(text, "{name: c, role: worker, args: [--probe-every, 40ms]", "{name: c, role: worker, args: [--probe-every, 40ms, "+by, 1)
	s := newSite(t, strings.Replace(text, "admission: {", "args: [--trusted-network, --lost-after, 1m], admission: {", 1), overlayApp)
	l := s.l
	for worker, want := range map[string]string{"a": "nftables", "b": "ebpf", "c": "nftables"} {
		if st := s.overlay(worker); st.Path != want || want == "nftables" && st.Why == "" {
			t.Errorf("%s: %q, %q", worker, st.Path, st.Why)
		}
	}
	client, alien := string(s.instance("shop", "client", "").ID), s.instance("other", "web", "")
	turns := func() {
		t.Helper()
		for _, url := range []string{"http://10.30.7.1/", "http://10.30.7.1:8080/", "http://[fd30:5ce7::a1e:701]:8080/"} {
			by, at, err := s.get(client, url, 40)
			if err != nil || len(by) != 4 || len(at) != 2 {
				t.Fatalf("%s: %v, %v, %v", url, by, at, err)
			}
			for id, n := range by {
				if n != 10 {
					t.Errorf("%s: %s got %d of 40 in turn", url, id, n)
				}
			}
		}
	}
	turns()
	// Where one of two cannot write plain datagrams, both seal, though the network is trusted.
	for _, p := range s.overlay("b").Peers {
		if p.Name != "" && p.Cipher == "" {
			t.Errorf("%+v", p)
		}
	}
	if by, _, err := s.get(client, "http://"+alien.Address+"/", 1); err == nil {
		t.Errorf("another application answers: %v", by)
	}
	for _, url := range []string{"http://10.30.7.1/", "http://10.30.7.1:8080/"} {
		if by, _, err := s.get(string(alien.ID), url, 6); err != nil || by[string(alien.ID)] != 6 {
			t.Errorf("%s: %v, %v", url, by, err)
		}
	}
	if by, _, err := s.get(string(s.instance("guest", "guest", "").ID), "http://web.default.shop.default.skerry/", 8); err != nil || len(by) != 4 {
		t.Errorf("an export: %v, %v", by, err)
	}
	// Without an agent what it has set up works on, and with the next one too.
	for _, host := range []string{"c", "a"} {
		if err := l.Kill(host, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if host == "c" {
			turns()
		}
		if err := l.Start(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		if err := l.Await(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		turns()
	}
	s.skerry("", "scale", "shop/web", "3")
	if by, _, err := s.get(client, "http://web/", 60); err != nil {
		t.Errorf("%v, %v", by, err)
	}
}

// TestOverlayPlain has a site whose operator declared its network trusted: paths are not sealed, but tagged, and what has no
// tag is dropped.
func TestOverlayPlain(t *testing.T) {
	s := newSite(t, strings.Replace(overlayLab, "admission: {", "args: [--trusted-network, --lost-after, 1m], admission: {", 1), overlayApp)
	l := s.l
	client := string(s.instance("shop", "client", "").ID)
	turns := func(url string) {
		t.Helper()
		if by, at, err := s.get(client, url, 16); err != nil || len(by) != 4 || len(at) != 2 {
			t.Errorf("%s: %v, %v, %v", url, by, at, err)
		}
	}
	turns("http://10.30.7.1/")
	turns("http://[fd30:5ce7::a1e:701]/")
	st := s.overlay("a")
	if len(st.Peers) != 2 || st.Counters["to-plain"] == 0 || st.Counters["from-plain"] == 0 || st.Counters["to-tunnel"] != 0 {
		t.Errorf("%+v\n%v", st.Peers, st.Counters)
	}
	for _, p := range st.Peers {
		if p.Path != overlay.PathPlain || p.Cipher != "" {
			t.Errorf("%+v", p)
		}
	}
	// The agents may die; and somebody else on the network has no tag.
	for _, host := range []string{"a", "b"} {
		if err := l.Kill(host, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if host == "b" {
			turns("http://10.30.7.1/") // its programs go on
		}
		if err := l.Start(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		if err := l.Await(t.Context(), host); err != nil {
			t.Fatal(err)
		}
		turns("http://10.30.7.1/")
	}
	before := s.overlay("a").Counters["drop-plain"]
	forge := `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(20): s.sendto(b"\x08\0\0\0\0\0\7\0" + b"\2"*12 + b"\x08\0" + b"E\0\0\x1c" + b"\0"*24, ("` + l.Topology.Host("a").Address + `", 7447))`
	if status, err := l.Exec(t.Context(), "site", exec.Command("python3", "-c", forge)); err != nil || status != 0 {
		t.Fatalf("%v, %d", err, status)
	}
	s.await("what has no tag is dropped", func() bool { return s.overlay("a").Counters["drop-plain"] >= before+20 })
	turns("http://10.30.7.1/")
}
