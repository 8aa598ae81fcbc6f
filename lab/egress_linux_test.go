package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
)

const egressLab = `
name: NAME
hosts:
- {name: site, role: cluster, root: none, admission: {trusted: [default], egress: {default: {allow: [{cidr: 203.0.113.0/24}, {cidr: "fd99::/64"}]}}}}
- {name: a, role: worker, args: [--dataplane, nftables]}
- {name: b, role: worker}
`

// egressApp is a service without rules of its own, and two with.
func egressApp(name, some string) string {
	app := "apiVersion: skerry/v1\nkind: Application\nmetadata: {name: " + name + "}\nspec:\n  services:\n"
	for _, own := range []string{"name: any", "name: shut, egress: {}", "name: some, egress: " + some} {
		app += "  - {" + own + ", mode: perWorker, image: demo/kit:1, args: [answer, ':80'], ports: [{name: http, port: 80}], resources: {cpu: 20m, memory: 32Mi}, terminationGrace: 1s}\n"
	}
	return app
}

// outside is a network beyond a worker, with a machine that answers by TCP and UDP at two ports. IPv6 is as an operator has it who routes
// a network of its own.
func (s *liveSite) outside(host string) {
	s.t.Helper()
	var ns *os.File
	err := thread.Do(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { ns.Close() })
	in := func(f func() error) error {
		return thread.Do(func() error {
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		})
	}
	s.script(host, fmt.Sprintf(`ip link add out type veth peer name out netns /proc/%d/fd/%d
ip address add 203.0.113.1/24 dev out; ip address add fd99::1/64 dev out nodad; ip link set out up; sysctl -qw net.ipv6.conf.all.forwarding=1`, os.Getpid(), ns.Fd()))
	script := `ip link set lo up; ip address add 203.0.113.2/24 dev out; ip address add fd99::2/64 dev out nodad; ip link set out up; ip route add default via 203.0.113.1; ip -6 route add default via fd99::1`
	if err := in(func() error { return exec.Command("sh", "-ec", script).Run() }); err != nil {
		s.t.Fatal(err)
	}
	var wg sync.WaitGroup
	s.t.Cleanup(wg.Wait) // after all are closed
	for _, addr := range []string{"203.0.113.2:9000", "203.0.113.2:9001", "[fd99::2]:9000", "[fd99::2]:9001"} {
		err := in(func() error {
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			p, err := net.ListenPacket("udp", addr)
			if err != nil {
				return err
			}
			wg.Go(func() {
				for c, err := l.Accept(); err == nil; c, err = l.Accept() {
					c.Close()
				}
			})
			wg.Go(func() {
				b := make([]byte, 64)
				for _, from, err := p.ReadFrom(b); err == nil; _, from, err = p.ReadFrom(b) {
					_, _ = p.WriteTo([]byte("!"), from)
				}
			})
			s.t.Cleanup(func() { l.Close(); p.Close() })
			return nil
		})
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *liveSite) script(host, text string) {
	s.t.Helper()
	if _, err := s.tryAt(host, "", "sh", "-ec", text); err != nil {
		s.t.Fatal(err)
	}
}

// networkOf opens the network namespace that an instance's program is in.
func networkOf(t *testing.T, id string) (file string) {
	t.Helper()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && file == "" && filepath.Base(path) == id+".main.1" {
			if data, _ := os.ReadFile(filepath.Join(path, "cgroup.procs")); len(strings.Fields(string(data))) > 0 {
				file = "/proc/" + strings.Fields(string(data))[0] + "/ns/net"
			}
		}
		return nil
	})
	if file == "" {
		t.Fatalf("%s has no process", id)
	}
	return file
}

// reach tries an address from a network namespace. Refusals come at once; whatever else goes wrong is an error.
func reach(ns, network, addr string) (open bool, err error) {
	err = thread.Do(func() error {
		fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		c, err := net.DialTimeout(network, addr, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		if network == "udp" {
			_ = c.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err = c.Write([]byte("?")); err == nil {
				_, err = c.Read(make([]byte, 64))
			}
		}
		return err
	})
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// nameStatus asks the name server of an instance, as the instance.
func nameStatus(ns, name string) (status dns.RCode, err error) {
	conf, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(ns)), "root/etc/resolv.conf"))
	if err != nil {
		return 0, err
	}
	_, server, _ := strings.Cut(string(conf), "nameserver ")
	server, _, _ = strings.Cut(server, "\n")
	q := dns.Message{Header: dns.Header{ID: 7, RecursionDesired: true}, Questions: []dns.Question{{Name: dns.MustNewName(name), Type: dns.TypeTXT, Class: dns.ClassINET}}}
	raw, err := q.Pack()
	if err != nil {
		return 0, err
	}
	err = thread.Do(func() error {
		f, err := os.Open(ns)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		c, err := net.Dial("udp", net.JoinHostPort(strings.TrimSpace(server), "53"))
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := c.Write(raw); err != nil {
			return err
		}
		answer := make([]byte, 1500)
		n, err := c.Read(answer)
		if err != nil {
			return err
		}
		var p dns.Parser
		h, err := p.Start(answer[:n])
		status = h.RCode
		return err
	})
	return status, err
}

// TestEgress has services with and without rules of their own on a worker of each data plane: everything outside is as the rules say, by
// TCP and UDP, IPv4 and IPv6; the overlay and its names go on as ever. What goes beyond the site's rules is refused, and what is in force
// is shown.
func TestEgress(t *testing.T) {
	s := newSite(t, egressLab, egressApp("shop", "{allow: [{cidr: 203.0.113.0/24, ports: [{port: 9000}, {port: 9000, protocol: udp}]}, {cidr: 'fd99::2/128', ports: [{port: 9000}, {port: 9000, protocol: udp}]}]}"))
	for worker, path := range map[string]string{"a": "nftables", "b": "ebpf"} {
		if st := s.overlay(worker); st.Path != path {
			t.Fatalf("%s handles packets by %q", worker, st.Path)
		}
		s.outside(worker)
		for service, ports := range map[string]map[string]bool{"any": {"9000": true, "9001": true}, "some": {"9000": true}, "shut": {}} {
			i := s.instance("shop", service, worker)
			ns := networkOf(t, string(i.ID))
			for _, port := range []string{"9000", "9001"} {
				for _, network := range []string{"tcp", "udp"} {
					for _, host := range []string{"203.0.113.2", "fd99::2"} {
						if open, err := reach(ns, network, net.JoinHostPort(host, port)); err != nil || open != ports[port] {
							t.Errorf("%s on %s to %s, %s %s: open %v, %v", service, worker, host, network, port, open, err)
						}
					}
				}
			}
			if open, err := reach(ns, "tcp", net.JoinHostPort(s.l.Topology.Host("site").Address, clusterAPI)); err != nil || open {
				t.Errorf("%s on %s reaches the site's API: %v", service, worker, err)
			}
			// Questions are a way out as well: who may go nowhere is refused, and others are told that nobody above answers.
			wantStatus := map[string]dns.RCode{"shut": dns.RCodeRefused, "some": dns.RCodeServerFailure, "any": dns.RCodeServerFailure}[service]
			if got, err := nameStatus(ns, "c2VjcmV0.example.org."); err != nil || got != wantStatus {
				t.Errorf("%s on %s asks for a name of the outside: %v, %v", service, worker, got, err)
			}
			others := map[string]int{"any": 1}[service] // nobody is led to itself
			if by, at, err := s.get(string(i.ID), "http://any/", 8); err != nil || len(at) != 2-others {
				t.Errorf("%s on %s asks any, of the overlay: %v, %v, %v", service, worker, by, at, err)
			}
		}
	}
	i := s.instance("shop", "any", "a")
	if out := string(s.skerry("", "describe", "instance", string(i.ID))); !strings.Contains(out, "203.0.113.0/24; fd99::/64") {
		t.Errorf("the site's rules are not shown:\n%s", out)
	}
	i = s.instance("shop", "shut", "a")
	if out := string(s.skerry("", "describe", "instance", string(i.ID))); !strings.Contains(out, "Egress") || !strings.Contains(out, "nothing") {
		t.Errorf("its own rules are not shown:\n%s", out)
	}
	wide := egressApp("wide", "{allow: [{cidr: 0.0.0.0/0, ports: [{port: 1}]}]}")
	if out, err := s.try(wide, s.l.Binary, "plan", "-f", "-"); !strings.Contains(string(out)+fmt.Sprint(err), "egress.allow[0] asks for 0.0.0.0/0 ports 1/tcp, and organisation default may reach 203.0.113.0/24; fd99::/64") {
		t.Errorf("beyond the site's rules: %s, %v", out, err)
	}
}
