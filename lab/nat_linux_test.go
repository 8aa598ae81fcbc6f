package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// natHosts has two hosts behind a NAT of each kind, and two machines outside.
func natHosts() string {
	text := "name: NAME\nhosts:\n- {name: s1}\n- {name: s2}\n"
	for _, k := range natKinds {
		text += fmt.Sprintf("- {name: nat-%s, role: nat, nat: %s}\n- {name: %s, behind: nat-%s}\n- {name: %s-2, behind: nat-%s}\n", k, k, k, k, k, k)
	}
	return text
}

// datagrams is a UDP socket of a host.
type datagrams struct {
	t *testing.T
	net.PacketConn
}

func socket(t *testing.T, l *Lab, host string, port int) datagrams {
	t.Helper()
	d := datagrams{t: t}
	if err := l.In(host, func() (err error) {
		d.PacketConn, err = net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func (d datagrams) send(to netip.AddrPort, text string) {
	d.t.Helper()
	// Whatever comes back says nothing of this one.
	if _, err := d.WriteTo([]byte(text), net.UDPAddrFromAddrPort(to)); err != nil && !errors.Is(err, syscall.EPERM) {
		d.t.Log(err)
	}
}

// next gives the next datagram; an empty text when none came in time.
func (d datagrams) next(patience time.Duration) (from netip.AddrPort, text string) {
	d.t.Helper()
	b := make([]byte, 100)
	d.SetReadDeadline(time.Now().Add(patience))
	n, a, err := d.ReadFrom(b)
	if err != nil {
		return from, ""
	}
	return a.(*net.UDPAddr).AddrPort(), string(b[:n])
}

// patience is how long what must come is waited for, and scant what must not come.
const (
	patience = 10 * time.Second
	scant    = 50 * time.Millisecond
)

// TestNATKinds looks at what routers do, with plain sockets.
func TestNATKinds(t *testing.T) {
	l := bring(t, natHosts(), options(t))
	at := func(host string, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(l.Topology.Host(host).Address), port)
	}
	s17, s18, s217 := socket(t, l, "s1", 7), socket(t, l, "s1", 8), socket(t, l, "s2", 17)
	s19, s29 := socket(t, l, "s1", 9), socket(t, l, "s2", 9)
	echo(t, l, "s2")
	var ln net.Listener
	if err := l.In("s1", func() (err error) { ln, err = net.Listen("tcp4", ":80"); return err }); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	for _, c := range []struct {
		kind          NAT
		keeps, s1, s2 bool // one outside port; lets in another port of s1, and s2
	}{
		{NATFullCone, true, true, true},
		{NATRestricted, true, true, false},
		{NATPortRestricted, true, false, false},
		{NATSymmetric, false, false, false},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			router := at("nat-"+string(c.kind), 0).Addr()
			var inside []datagrams
			var outside []netip.AddrPort
			for _, host := range []string{string(c.kind), string(c.kind) + "-2"} {
				in := socket(t, l, host, 5000)
				in.send(at("s1", 7), "hello")
				seen, _ := s17.next(patience)
				inside, outside = append(inside, in), append(outside, seen)
				// Unasked ones first: when the one that was asked for is there, they are, or will not be.
				s19.send(seen, "s1")
				s29.send(seen, "s2")
				s17.send(seen, "end")
				got := map[string]bool{}
				for text := ""; text != "end"; got[text] = true {
					if _, text = in.next(patience); text == "" {
						t.Fatal("no answer")
					}
				}
				if got["s1"] != c.s1 || got["s2"] != c.s2 {
					t.Errorf("%s: lets in %v", host, got)
				}
				in.send(at("s1", 8), "hello")
				in.send(at("s2", 17), "hello")
				other, _ := s18.next(patience)
				third, _ := s217.next(patience)
				if seen.Addr() != router || other.Addr() != router || third.Addr() != router {
					t.Errorf("%s: comes from %s, %s, %s, not from %s", host, seen, other, third, router)
				}
				if same := seen == other && seen == third; same != c.keeps {
					t.Errorf("%s: comes from %s, %s, %s", host, seen, other, third)
				}
			}
			if outside[0] == outside[1] {
				t.Errorf("two hosts have the outside port %s", outside[0])
			}
			// Another router knows nobody.
			if err := l.SetNAT(t.Context(), "nat-"+string(c.kind), c.kind); err != nil {
				t.Fatal(err)
			}
			s17.send(outside[0], "late")
			if _, text := inside[0].next(scant); text != "" {
				t.Errorf("a new router lets in %q", text)
			}
		})
	}

	t.Run("all", func(t *testing.T) {
		for _, k := range natKinds {
			// Outward TCP passes, inward TCP and UDP vanish, and nothing is answered.
			if err := l.In(string(k), func() error {
				c, err := net.Dial("tcp4", at("s1", 80).String())
				if err == nil {
					c.Close()
				}
				return err
			}); err != nil {
				t.Errorf("%s: %v", k, err)
			}
			if err := l.In("s1", func() error {
				_, err := net.DialTimeout("tcp4", at("nat-"+string(k), 22).String(), scant)
				return err
			}); err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.EHOSTUNREACH) {
				t.Errorf("%s answers: %v", k, err)
			}
			if err := l.In("s1", func() error {
				c, err := net.Dial("udp4", at("nat-"+string(k), 4500).String())
				if err != nil {
					return err
				}
				defer c.Close()
				if _, err := c.Write([]byte("x")); err != nil {
					return err
				}
				c.SetReadDeadline(time.Now().Add(scant))
				_, err = c.Read(make([]byte, 1))
				return err
			}); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s answers: %v", k, err)
			}
			want, wait := 3, patience
			if k == NATNoUDP {
				want, wait = 0, scant
			}
			if n, _ := pings(t, l, string(k), "s2", 3, wait); n != want {
				t.Errorf("%s: %d of 3 came back", k, n)
			}
		}
	})

	// Two hosts that know each other's outside address send to it, one of them too early.
	t.Run("punching", func(t *testing.T) {
		for i, a := range natKinds[:4] {
			for j, b := range natKinds[:4] {
				hosts := [2]string{string(a), string(b) + "-2"}
				var ends [2]datagrams
				var seen [2]netip.AddrPort
				for k := range ends {
					ends[k] = socket(t, l, hosts[k], 6000+10*i+j)
					ends[k].send(at("s1", 7), "hello")
					seen[k], _ = s17.next(patience)
				}
				var got [2]bool
				to := [2]netip.AddrPort{seen[1], seen[0]}
				for range 4 {
					for k := range ends {
						ends[k].send(to[k], "punch")
						ends[k].send(at("s2", 7), "barrier")
						for text := ""; text != "barrier"; {
							var from netip.AddrPort
							if from, text = ends[k].next(patience); text == "punch" {
								got[k], to[k] = true, from
							} else if text == "" {
								t.Fatal("no answer")
							}
						}
					}
				}
				want := i+j < 5 // port-restricted and symmetric, or worse
				if i == j {
					want = false // behind one NAT its outside address leads nowhere
				}
				if got[0] != want || got[1] != want {
					t.Errorf("%s and %s: %v, not %t", a, b, got, want)
				}
			}
		}
	})
}

func TestNATChanges(t *testing.T) {
	l := bring(t, "name: NAME\nhosts: [{name: s}, {name: carrier, role: nat, nat: symmetric}, {name: home, role: nat, nat: full-cone, behind: carrier}, {name: a, behind: home}]", options(t))
	ctx := t.Context()
	echo(t, l, "s")
	// Behind two routers.
	if n, _ := pings(t, l, "a", "s", 5, patience); n != 5 {
		t.Errorf("%d of 5 came back", n)
	}
	st, err := l.Status(ctx)
	if err != nil || st.Hosts[1].NAT != NATSymmetric || st.Hosts[2].Behind != "carrier" || st.Hosts[3].Behind != "home" || st.Hosts[3].Address != "192.168.2.2" {
		t.Errorf("%+v, %v", st, err)
	}
	var out strings.Builder
	if printStatus(&out, &st); !strings.Contains(out.String(), "nat carrier: symmetric, behind it home\nnat home: full-cone, behind it a\n") {
		t.Error(out.String())
	}
	for _, c := range []struct {
		host string
		kind NAT
		code skerry.Code
		says string
	}{
		{"carrier", "cone", skerry.CodeInvalid, "no kind of NAT"},
		{"a", NATSymmetric, skerry.CodeInvalid, "not a NAT"},
		{"x", NATSymmetric, skerry.CodeNotFound, "no host"},
	} {
		if err := l.SetNAT(ctx, c.host, c.kind); skerry.AsError(err).Code != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %s: %v", c.host, c.kind, err)
		}
	}
	if err := l.PowerOff(ctx, "home"); skerry.AsError(err).Code != skerry.CodeUnsupported {
		t.Error(err)
	}
	if err := l.Partition(ctx, "a", "home", false); skerry.AsError(err).Code != skerry.CodeInvalid {
		t.Error(err)
	}
	if err := l.SetNAT(ctx, "carrier", NATNoUDP); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "s", 5, 4*scant); n != 0 {
		t.Errorf("%d came through a firewall", n)
	}
	if st, err := l.Status(ctx); err != nil || st.Hosts[1].NAT != NATNoUDP {
		t.Errorf("%+v, %v", st, err)
	}
	if err := l.SetNAT(ctx, "carrier", NATRestricted); err != nil {
		t.Fatal(err)
	}
	// Switched off and on it is where it was; and a partition holds it with its NATs.
	if err := l.PowerOff(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "s", 5, patience); n != 5 {
		t.Errorf("%d of 5 came back", n)
	}
	if err := l.Partition(ctx, "a", "s", false); err != nil {
		t.Fatal(err)
	}
	if n, _ := pings(t, l, "a", "s", 5, 4*scant); n != 0 {
		t.Errorf("%d came through a partition", n)
	}
	if status, err := l.Exec(ctx, "home", exec.Command("nft", "list", "table", "ip", "lab")); err != nil || status != 0 {
		t.Error(status, err)
	}
}
