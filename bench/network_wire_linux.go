package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"
)

// wireKind is what is between two hosts.
type wireKind struct {
	name  string
	small bool // no packets longer than 1500 bytes
	relay bool // not joined: a host between them forwards nothing
	delay bool // a router between them, which delays
}

// netHost is one of two machines: a namespace with a wire, and a bridge for instances.
type netHost struct {
	n     int // 1 or 2
	ns    *namespace
	addr  netip.Addr // on the wire
	insts []*namespace
}

func (h *netHost) block() netip.Prefix {
	return netip.MustParsePrefix(fmt.Sprintf("10.40.%d.0/26", h.n))
}

// inst is the address of an instance.
func (h *netHost) inst(k int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 40, byte(h.n), byte(k + 2)})
}

// rig is a world of two hosts for one case, so that no case lies in another's way.
type rig struct {
	ctx      context.Context
	program  string
	hosts    [2]*netHost
	mid      *namespace // between the hosts; nil: nothing is
	undo     []func() error
	replicas int // instances on the second host
}

func (r *rig) later(f func() error) { r.undo = append(r.undo, f) }

// close takes all down that was made, last first.
func (r *rig) close() error {
	var errs []error
	for len(r.undo) > 0 {
		f := r.undo[len(r.undo)-1]
		r.undo = r.undo[:len(r.undo)-1]
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (r *rig) space(name string) (*namespace, error) {
	n, err := newNamespace(name)
	if n != nil {
		r.later(func() error { n.close(); return nil })
	}
	return n, err
}

// sh runs a script in a namespace.
func (n *namespace) sh(format string, args ...any) error {
	return n.run("sh", "-ec", fmt.Sprintf(format, args...))
}

const offloadsOff = "ethtool -K %s tso off gso off tx-udp_tnl-segmentation off tx-udp-segmentation off gro on >/dev/null"

// cable joins two namespaces.
func (r *rig) cable(a *namespace, devA string, b *namespace, devB string, small bool) error {
	if err := a.sh("ip link add %s mtu 1500 type veth peer name %s mtu 1500 netns /proc/%d/fd/%d", devA, devB, os.Getpid(),
		b.file.Fd()); err != nil {
		return err
	}
	for _, e := range []struct {
		ns  *namespace
		dev string
	}{{a, devA}, {b, devB}} {
		script := "ip link set " + e.dev + " up"
		if small {
			script += "; " + fmt.Sprintf(offloadsOff, e.dev)
		}
		if err := e.ns.sh("%s", script); err != nil {
			return err
		}
	}
	return nil
}

// join makes the two hosts and what is between them.
func (r *rig) join(kind wireKind) error {
	for i := range r.hosts {
		ns, err := r.space(fmt.Sprint("host", i+1))
		if err != nil {
			return err
		}
		r.hosts[i] = &netHost{n: i + 1, ns: ns, addr: netip.AddrFrom4([4]byte{10, 100, 0, byte(i + 1)})}
		if err := ns.sh("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.tcp_tw_reuse=1 net.ipv4.ip_local_port_range='2048 65000'"); err != nil {
			return err
		}
	}
	one, two := r.hosts[0], r.hosts[1]
	if kind.relay || kind.delay {
		var err error
		if r.mid, err = r.space("between"); err != nil {
			return err
		}
		for _, h := range r.hosts {
			if err := r.cable(h.ns, "wire", r.mid, fmt.Sprint("p", h.n), kind.small); err != nil {
				return err
			}
		}
	} else if err := r.cable(one.ns, "wire", two.ns, "wire", kind.small); err != nil {
		return err
	}
	switch {
	case kind.relay:
		// Ports that are isolated reach the bridge, and not each other.
		if err := r.mid.sh(`ip link add br0 type bridge
			ip addr add %s/24 dev br0
			ip link set p1 master br0
			ip link set p2 master br0
			ip link set p1 type bridge_slave isolated on
			ip link set p2 type bridge_slave isolated on
			ip link set br0 up`, relayAddr); err != nil {
			return err
		}
	case kind.delay:
		if err := r.mid.sh(`sysctl -qw net.ipv4.ip_forward=1
			ip addr add 10.100.1.1/24 dev p1
			ip addr add 10.100.2.1/24 dev p2
			ip route add 10.40.1.0/26 via 10.100.1.2
			ip route add 10.40.2.0/26 via 10.100.2.2`); err != nil {
			return err
		}
		for _, h := range r.hosts {
			h.addr = netip.AddrFrom4([4]byte{10, 100, byte(h.n), 2})
		}
	}
	for _, h := range r.hosts {
		gate := ""
		if kind.delay {
			gate = fmt.Sprintf("; ip route add default via 10.100.%d.1", h.n)
		}
		if err := h.ns.sh("ip addr add %s/24 dev wire%s", h.addr, gate); err != nil {
			return err
		}
	}
	return nil
}

// instances makes the bridges and what is attached to them: one instance on the first host, replicas on the second.
func (r *rig) instances(mtu int) error {
	for _, host := range r.hosts {
		// The address of a bridge is given, because it would change with what is attached.
		if err := host.ns.sh(`ip link add lan0 type bridge
			ip link set lan0 address 02:00:00:00:00:0%[1]d up
			ip addr add 10.40.%[1]d.1/26 dev lan0`, host.n); err != nil {
			return err
		}
		count := 1
		if host.n == 2 {
			count = max(r.replicas, 1)
		}
		for k := range count {
			ns, err := r.space(fmt.Sprintf("instance%d.%d", host.n, k))
			if err != nil {
				return err
			}
			host.insts = append(host.insts, ns)
			dev := instDevice(k)
			if err := host.ns.sh(`ip link add %[1]s mtu 1500 type veth peer name eth0 mtu %[2]d netns /proc/%[3]d/fd/%[4]d
				ip link set %[1]s master lan0 up`, dev, mtu, os.Getpid(), ns.file.Fd()); err != nil {
				return err
			}
			if err := ns.sh(`ip addr add %s/26 dev eth0
				ip link set eth0 up
				ip route add default via 10.40.%d.1
				sysctl -qw net.ipv4.tcp_tw_reuse=1 net.ipv4.ip_local_port_range='2048 65000'`, host.inst(k), host.n); err != nil {
				return err
			}
		}
	}
	return nil
}

// instDevice is the host's end of an instance's cable.
func instDevice(k int) string { return fmt.Sprint("i", k) }

// child starts a process in a namespace that lives as long as the rig, and waits until it has said a word.
func (r *rig) child(ns *namespace, word, stdin string, argv ...string) (*exec.Cmd, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	var tail strings.Builder
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = cmd.Stdout
	if err := ns.start(cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", argv[0], err)
	}
	said := make(chan bool, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		heard := false
		for {
			n, err := out.Read(buf)
			if !heard {
				tail.Write(buf[:n])
				if strings.Contains(tail.String(), word) {
					heard = true
					said <- true
				}
			}
			if err != nil {
				if !heard {
					said <- false
				}
				return
			}
		}
	}()
	r.later(func() error {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
		return nil
	})
	select {
	case ok := <-said:
		if !ok {
			return nil, fmt.Errorf("%s ended: %s", strings.Join(argv, " "), strings.TrimSpace(tail.String()))
		}
		return cmd, nil
	case <-time.After(10 * time.Second):
		return nil, fmt.Errorf("%s does not start", strings.Join(argv, " "))
	case <-r.ctx.Done():
		return nil, r.ctx.Err()
	}
}
