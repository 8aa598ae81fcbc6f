package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"skerry.dev/skerry/internal/thread"
)

// namespace is a network namespace of the benchmark's own, held open by a descriptor.
type namespace struct {
	name string
	file *os.File
}

// newNamespace makes a namespace with loopback up.
func newNamespace(name string) (*namespace, error) {
	var f *os.File
	err := thread.Do(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		f, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	n := &namespace{name, f}
	return n, n.run("ip", "link", "set", "lo", "up")
}

// do runs fn inside the namespace.
func (n *namespace) do(fn func() error) error {
	return thread.Do(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return fn()
	})
}

// start starts a process inside the namespace.
func (n *namespace) start(cmd *exec.Cmd) error { return n.do(cmd.Start) }

func (n *namespace) run(args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.start(cmd); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out.String())
	}
	return nil
}

// dial makes a connection from inside the namespace.
func (n *namespace) dial(ctx context.Context, network, addr string) (c net.Conn, err error) {
	err = n.do(func() error {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// join lays a cable between two namespaces. The addresses have a prefix length; dev is the name on both sides.
func (n *namespace) join(other *namespace, dev, here, there string) error {
	path := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), other.file.Fd())
	for _, c := range []struct {
		ns   *namespace
		args string
	}{
		{n, "ip link add " + dev + " type veth peer name " + dev + "p netns " + path},
		{n, "ip addr add " + here + " dev " + dev}, {n, "ip link set " + dev + " up"},
		{other, "ip addr add " + there + " dev " + dev + "p"}, {other, "ip link set " + dev + "p up"},
	} {
		if err := c.ns.run(strings.Fields(c.args)...); err != nil {
			return err
		}
	}
	return nil
}

// traffic gives the bytes that have passed a device in both directions.
func (n *namespace) traffic(dev string) (bytes float64, err error) {
	err = n.do(func() error {
		data, err := os.ReadFile("/proc/thread-self/net/dev")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(data), "\n") {
			name, rest, ok := strings.Cut(line, ":")
			if f := strings.Fields(rest); ok && strings.TrimSpace(name) == dev && len(f) > 8 {
				rx, _ := strconv.ParseFloat(f[0], 64)
				tx, _ := strconv.ParseFloat(f[8], 64)
				bytes = rx + tx
				return nil
			}
		}
		return fmt.Errorf("no device %s", dev)
	})
	return bytes, err
}

func (n *namespace) close() { n.file.Close() }
