//go:build linux

package hostnet

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// site is a host with an address on a wire, and another machine at its other end. Both are namespaces.
//
//	remote 198.51.100.2 ── wire, MTU 1400 ── 198.51.100.1 host
type site struct {
	dir          string
	host, remote *os.File
}

const hostIP, remoteIP = "198.51.100.1", "198.51.100.2"

func newSite(t testing.TB) *site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests need root: they make network namespaces")
	}
	s := &site{dir: t.TempDir()}
	for name, f := range map[string]**os.File{"host": &s.host, "remote": &s.remote} {
		path := filepath.Join(s.dir, name)
		must(t, newNS(path, func(*os.File) error {
			return netlink.LinkSetUp(&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: 1}})
		}))
		t.Cleanup(func() { must(t, removeNS(path)) })
		var err error
		*f, err = os.Open(path)
		must(t, err)
		t.Cleanup(func() { (*f).Close() })
	}
	must(t, kernel.In(s.host, func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "wan", MTU: 1400, TxQLen: -1}, PeerName: "wan", PeerMTU: 1400, PeerNamespace: netlink.NsFd(int(s.remote.Fd())),
		})
	}))
	for ip, ns := range map[string]*os.File{hostIP: s.host, remoteIP: s.remote} {
		must(t, kernel.In(ns, func() error {
			l, err := netlink.LinkByName("wan")
			if err != nil {
				return err
			}
			a, _ := netlink.ParseAddr(ip + "/24")
			if err := netlink.AddrAdd(l, a); err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
			if ns == s.host {
				return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: net.ParseIP(remoteIP)})
			}
			return nil
		}))
	}
	return s
}

func (s *site) options(name string) Options {
	resolv := filepath.Join(s.dir, "resolv.conf")
	_ = os.WriteFile(resolv, []byte("nameserver 198.51.100.53\nnameserver 127.0.0.53\nsearch island.example\n"), 0o644)
	return Options{
		Name: name, StateDir: filepath.Join(s.dir, "state-"+name), RunDir: filepath.Join(s.dir, "run-"+name),
		NetNS: filepath.Join(s.dir, "host"), ResolvConf: resolv,
	}
}

func (s *site) open(t testing.TB, o Options) *Network {
	t.Helper()
	n, err := New(o)
	must(t, err)
	t.Cleanup(func() {
		n.Close()
		// Whatever the test did with n: nothing may stay mounted.
		if c, err := New(o); err == nil {
			must(t, c.CleanUp(context.Background()))
			c.Close()
		}
	})
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(ids ...string) Config {
	var c Config
	for _, id := range ids {
		c.Attachments = append(c.Attachments, Want{ID: id})
	}
	return c
}

// serve answers every TCP connection and every datagram in a namespace with the client's address.
func serve(t testing.TB, ns *os.File, addr string) {
	t.Helper()
	must(t, kernel.In(ns, func() error {
		l, err := net.Listen("tcp", addr) // also by IPv6
		if err != nil {
			return err
		}
		p, err := net.ListenPacket("udp4", addr)
		if err != nil {
			return err
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				fmt.Fprint(c, c.RemoteAddr())
				c.Close()
			}
		})
		wg.Go(func() {
			var b [64]byte
			for {
				_, from, err := p.ReadFrom(b[:])
				if err != nil {
					return
				}
				_, _ = p.WriteTo([]byte(from.String()), from)
			}
		})
		t.Cleanup(func() {
			l.Close()
			p.Close()
			wg.Wait()
		})
		return nil
	}))
}

// dial connects from a namespace and gives the client address that the server saw.
func dial(ns *os.File, network, addr string) (client netip.Addr, err error) {
	err = kernel.In(ns, func() error {
		c, err := net.DialTimeout(network, addr, 5*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(5 * time.Second))
		var b []byte
		if strings.HasPrefix(network, "udp") {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			b = make([]byte, 64)
			n, err := c.Read(b)
			if err != nil {
				return err
			}
			b = b[:n]
		} else if b, err = io.ReadAll(c); err != nil {
			return err
		}
		ap, err := netip.ParseAddrPort(string(b))
		client = ap.Addr()
		return err
	})
	return client, err
}

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}
