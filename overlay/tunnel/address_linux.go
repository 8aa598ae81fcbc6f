package tunnel

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// localAddresses are the addresses of this machine's interfaces under which it may be reached.
func localAddresses(port uint16, hidden []netip.Prefix) []netip.AddrPort {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.AddrPort
	for _, a := range list {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, _ := netip.AddrFromSlice(n.IP)
		at := netip.AddrPortFrom(ip.Unmap(), port)
		if usable(at) && !slices.ContainsFunc(hidden, func(p netip.Prefix) bool { return p.Contains(at.Addr()) }) {
			out = append(out, at)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}

// sourceOf gives the address from which this machine would send to another; the zero value when it cannot.
func sourceOf(to netip.AddrPort) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to)) // which sends nothing
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

// addressWatch tells when addresses of this machine change.
type addressWatch struct {
	fd   int
	wake wake
	wg   sync.WaitGroup
}

// settleFor is how long changes are gathered: one seldom comes alone.
const settleFor = 20 * time.Millisecond

func watchAddresses(changed func()) (*addressWatch, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("netlink socket", err)
	}
	const groups = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("bind netlink socket", err)
	}
	w, err := newWake()
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	a := &addressWatch{fd: fd, wake: w}
	a.wg.Go(func() {
		buf := make([]byte, 4096)
		for a.wake.wait(fd) {
			fds := []unix.PollFd{{Fd: int32(w.fd), Events: unix.POLLIN}}
			_, _ = unix.Poll(fds, int(settleFor/time.Millisecond))
			for {
				// What it says matters not; what does not fit (ENOBUFS) has changed too.
				if _, _, err := unix.Recvfrom(fd, buf, 0); err == unix.EAGAIN {
					break
				}
			}
			changed()
		}
	})
	return a, nil
}

func (a *addressWatch) close() {
	if a == nil {
		return
	}
	a.wake.wake()
	a.wg.Wait()
	unix.Close(a.fd)
	unix.Close(a.wake.fd)
}
