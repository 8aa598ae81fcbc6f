//go:build linux

package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// dialTime bounds a connection to an instance.
const dialTime = 5 * time.Second

// dialInstance connects to a TCP port of an instance: at its address, else at loopback of a network namespace that it
// has without one. What has neither shares the host's network with whatever listens there, and is reached only at ports
// that its manifest declares and it listens on itself.
func (s *Server) dialInstance(ctx context.Context, id skerry.InstanceID, port int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	var addr string
	var svc spec.ServiceSpec
	var tasks []runtime.Handle
	found := false
	err := s.Role.View(ctx, func(c loop.Core) {
		v, ok := core.ViewOf(c.(*core.Core), id)
		if !ok {
			return
		}
		addr, svc, found = v.Address(), v.Assignment().Spec, true
		for _, handle := range v.Running() {
			if _, h, err := s.runtimes.of(handle); err == nil && h.PID > 0 {
				tasks = append(tasks, h)
			}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, skerry.Errorf(skerry.CodeNotFound, "instance %q is not on this worker", id)
	case addr != "":
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	}
	n := slices.IndexFunc(tasks, func(h runtime.Handle) bool { return h.Container == spec.MainContainer })
	if n < 0 {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "instance %s does not run yet", id)
	}
	loopback := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
	netns := fmt.Sprintf("/proc/%d/ns/net", tasks[n].PID)
	switch shared, err := sameFile(netns, "/proc/self/ns/net"); {
	case err != nil:
		return nil, err
	case !shared:
		return dialIn(ctx, netns, loopback)
	}
	if err := mayReach(&svc, tasks, id, port); err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", loopback.String())
}

func sameFile(a, b string) (bool, error) {
	x, err := os.Stat(a)
	if err != nil {
		return false, err
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y), err
}

// mayReach refuses a port of the host's that is not the instance's own.
func mayReach(svc *spec.ServiceSpec, tasks []runtime.Handle, id skerry.InstanceID, port int) error {
	declared := slices.ContainsFunc(svc.Ports, func(p spec.Port) bool {
		return p.Port == port &&
			(p.Proto() == "tcp" || p.Proto() == "any")
	}) || svc.Metrics != nil && svc.Metrics.Port == port
	if !declared {
		return skerry.Errorf(skerry.CodeForbidden, "instance %s has no network of its own on this worker, and its service declares no TCP port %d: other programs of the host may listen there", id, port).
			WithHint("list the port under ports of the service; or ask the operator to run the worker without --no-network")
	}
	own, err := listensAlone(tasks, uint16(port))
	if err == nil && !own {
		err = skerry.Errorf(skerry.CodeForbidden, "instance %s has no network of its own on this worker, and does not listen on port %d itself",
			id, port).
			WithHint("does the service listen on it, on all addresses? Ports of other programs of the host are not forwarded")
	}
	return err
}

// listensAlone reports whether all sockets that a connection to a port of 127.0.0.1 may end up at belong to processes
// of some tasks, and there is one.
func listensAlone(tasks []runtime.Handle, port uint16) (bool, error) {
	foreign := map[string]bool{} // the links of /proc/PID/fd
	for _, file := range []string{"tcp", "tcp6"} {
		f, err := os.Open("/proc/thread-self/net/" + file)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		if err != nil {
			return false, err
		}
		err = listeners(f, port, func(inode string) { foreign["socket:["+inode+"]"] = true })
		f.Close()
		if err != nil {
			return false, err
		}
	}
	if len(foreign) == 0 {
		return false, nil
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return false, err
	}
	for _, proc := range procs {
		groups, err := os.ReadFile(proc + "/cgroup")
		if err != nil || !slices.ContainsFunc(tasks, func(h runtime.Handle) bool { return inGroup(string(groups), string(h.ID)) }) {
			continue
		}
		fds, _ := os.ReadDir(proc + "/fd")
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil {
				delete(foreign, to)
			}
		}
	}
	return len(foreign) == 0, nil
}

// inGroup reports whether a process, whose /proc/PID/cgroup is given, is in a group of that name or below one.
func inGroup(groups, name string) bool {
	for line := range strings.Lines(groups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && slices.Contains(strings.Split(parts[2], "/"), name) {
			return true
		}
	}
	return false
}

// listeners reads a table of sockets as in /proc/net/tcp and gives the inodes of those that take connections to a port of 127.0.0.1.
func listeners(table io.Reader, port uint16, found func(inode string)) error {
	const listen = "0A"
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 || f[3] != listen {
			continue
		}
		addr, at, ok := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(at, 16, 16)
		if !ok || err != nil || uint16(n) != port {
			continue
		}
		// Whatever the byte order is: any address, 127.0.0.1, and those in their IPv6 forms. Others are not connected to, and another one of
		// 127.0.0.0/8 is not in this list.
		if strings.Trim(addr, "0") == "" || slices.Contains([]string{"0100007F", "7F000001", "0000000000000000FFFF00000100007F",
			"00000000000000000000FFFF7F000001"}, addr) {
			found(f[9])
		}
	}
	return lines.Err()
}
