//go:build linux

package main

import (
	"strconv"
	"syscall"
	"unsafe"

	"skerry.dev/skerry/runtime/vm/wire"
)

// network brings the loopback interface up, and asks the kernel for what the host says.
func network(n *wire.Net) error {
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return wrap("network", err)
	}
	defer syscall.Close(fd)
	var up struct {
		h syscall.NlMsghdr
		i syscall.IfInfomsg
	}
	up.h = syscall.NlMsghdr{Len: uint32(unsafe.Sizeof(up)), Type: syscall.RTM_NEWLINK, Flags: syscall.NLM_F_REQUEST | syscall.NLM_F_ACK}
	up.i = syscall.IfInfomsg{Index: 1, Flags: syscall.IFF_UP, Change: syscall.IFF_UP}
	if err := ask(fd, unsafe.Slice((*byte)(unsafe.Pointer(&up)), unsafe.Sizeof(up))); err != nil {
		return wrap("bring lo up", err)
	}
	if n == nil {
		return nil
	}
	for range 500 { // the device comes up by itself
		if index, err := readFile("/sys/class/net/eth0/ifindex"); err == nil && number(index) == uint64(n.Index) {
			for i, r := range n.Requests {
				if err := ask(fd, []byte(r)); err != nil {
					return wrap("network: request "+strconv.Itoa(i), err)
				}
			}
			// As in the namespaces of containers.
			_ = writeFile("/proc/sys/net/ipv4/ping_group_range", "0\t2147483647")
			_ = writeFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")
			return nil
		}
		pause()
	}
	return wrap("find eth0", syscall.ENODEV)
}

// ask sends one request and reads whether the kernel did it.
func ask(fd int, request []byte) error {
	if err := syscall.Sendto(fd, request, 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := syscall.Recvfrom(fd, b, 0)
	if err != nil {
		return err
	}
	if n < syscall.SizeofNlMsghdr+4 || (*syscall.NlMsghdr)(unsafe.Pointer(&b[0])).Type != syscall.NLMSG_ERROR {
		return syscall.EPROTO
	}
	if code := *(*int32)(unsafe.Pointer(&b[syscall.SizeofNlMsghdr])); code != 0 {
		return syscall.Errno(-code)
	}
	return nil
}
