//go:build linux && amd64

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/wire"
)

// namespace makes a network namespace with a path, and runs f on a thread in it.
func namespace(t *testing.T, f func() error) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	err := thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	return path
}

// inside runs f on a thread in a namespace.
func inside(t *testing.T, path string, f func() error) {
	t.Helper()
	err := thread.Do(func() error {
		ns, err := netns.GetFromPath(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := netns.Set(ns); err != nil {
			return err
		}
		return f()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// cable makes the namespaces of an instance and of who speaks with it, and what joins them.
func cable(t *testing.T) (outer, inner string, attachment *wire.Attachment) {
	t.Helper()
	return cableTo(t, 7)
}

// cableTo is cable with the last number of the instance's addresses.
func cableTo(t *testing.T, last int) (outer, inner string, attachment *wire.Attachment) {
	t.Helper()
	four, six := fmt.Sprintf("192.0.2.%d/24", last), fmt.Sprintf("fd00:5::%d/64", last)
	outer = namespace(t, func() error { return nil })
	inner = namespace(t, func() error { return nil })
	addr := func(s string) *netlink.Addr {
		a, err := netlink.ParseAddr(s)
		if err != nil {
			t.Fatal(err)
		}
		if a.IP.To4() == nil {
			a.Flags = unix.IFA_F_NODAD
		}
		return a
	}
	inside(t, inner, func() error {
		ns, err := netns.GetFromPath(outer)
		if err != nil {
			return err
		}
		defer ns.Close()
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1400}, PeerName: "host", PeerMTU: 1400, PeerNamespace: netlink.NsFd(int(ns))}
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(eth, addr(four)), netlink.AddrAdd(eth, addr(six)), netlink.LinkSetUp(eth),
			netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.ParseIP("192.0.2.1")}))
	})
	inside(t, outer, func() error {
		host, err := netlink.LinkByName("host")
		if err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		// The address on lo is reached by the guest's default route alone.
		return errors.Join(netlink.AddrAdd(host, addr("192.0.2.1/24")), netlink.AddrAdd(host, addr("fd00:5::1/64")), netlink.LinkSetUp(host),
			netlink.LinkSetUp(lo), netlink.AddrAdd(lo, addr("198.51.100.1/32")))
	})
	return outer, inner, &wire.Attachment{NetNS: inner, MTU: 1400, Addresses: []netip.Prefix{netip.MustParsePrefix(four), netip.MustParsePrefix(six)}}
}

// TestNetwork reaches a guest at the addresses of its instance's namespace, over both families, with more than a segment both
// ways, and looks that a machine after it finds the network as it was.
func TestNetwork(t *testing.T) {
	os.Setenv(kernelEnv, testenv.GuestKernel(t))
	reachesGuests(t)
}

// reachesGuests is TestNetwork with the driver that open gives.
func reachesGuests(t *testing.T) {
	t.Helper()
	outer, inner, attachment := cable(t)
	root := echoImage(t)
	d, err := open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, id := range []runtime.TaskID{"net.main.1", "net.main.2"} {
		h, err := d.Start(t.Context(), runtime.Spec{ID: id, RootFS: []runtime.Mount{{Type: "bind", Source: root}}, Args: []string{"/echo"}, User: "1234", Network: attachment})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := d.(*Driver).OpenLog(t.Context(), h, runtime.LogOptions{Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := stream.Next(); err != nil || e.Line != "listening" {
			t.Fatalf("%+v, %v", e, err)
		}
		stream.Close()
		for _, from := range []struct{ source, to string }{{"", "192.0.2.7:80"}, {"198.51.100.1", "192.0.2.7:80"}, {"", "[fd00:5::7]:80"}} {
			inside(t, outer, func() error { return echo(from.source, from.to) })
		}
		if id == "net.main.1" {
			_, err := d.Start(t.Context(), runtime.Spec{ID: "net.side.1", RootFS: []runtime.Mount{{Type: "bind", Source: root}}, Args: []string{"/echo"}, Network: attachment})
			if se, ok := errors.AsType[*runtime.StartError](err); !ok || se.Field != "network" {
				t.Errorf("a second machine in the namespace: %v", err)
			}
		}
		if err := d.Remove(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		inside(t, inner, func() error {
			if _, err := netlink.LinkByName(tapName); err == nil {
				t.Error("the tap is left")
			}
			return nil
		})
	}
}

// echoImage makes a directory with the server that sends back.
func echoImage(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(root, "echo"), "./testdata/echo")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return root
}

// echo sends a megabyte to a server that sends it back.
func echo(source, to string) error {
	dialer := net.Dialer{Timeout: 20 * time.Second}
	if source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	// Not by DialContext's own goroutines, for the socket is to be of this thread's namespace.
	conn, err := dialer.Dial("tcp", to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() {
		_, _ = conn.Write(sent)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	back, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(back, sent) {
		err = errors.New("something else came back")
	}
	return err
}
