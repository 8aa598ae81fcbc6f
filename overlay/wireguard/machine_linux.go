package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"skerry.dev/skerry/wire"
)

// machine is the kernel of this machine, in the network namespace in which it was opened.
type machine struct {
	name string
	nl   *netlink.Handle // nil: not open
	ctl  *wgctrl.Client  // nil: not open

	mu     sync.Mutex
	socket *os.File // packets of the device; nil: none
	asking *os.File // see ask; nil: nobody does
	closed bool
}

// unsupported recognises a kernel without WireGuard, and a lack of privileges.
func unsupported(err error) error {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOENT):
		return &Unsupported{Reason: "the kernel has no WireGuard: " + err.Error(),
			Cure: "load its module with modprobe wireguard, or use a kernel with CONFIG_WIREGUARD; until then the datapath encrypts"}
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return &Unsupported{Reason: "WireGuard needs privileges: " + err.Error(), Cure: "run the worker with CAP_NET_ADMIN and CAP_NET_RAW"}
	case errors.Is(err, unix.EADDRINUSE):
		return &Unsupported{Reason: "the UDP port for WireGuard is used by another program: " + err.Error(),
			Cure: "choose another one with --wireguard-port"}
	}
	return fmt.Errorf("wireguard: %w", err)
}

func (m *machine) open(private [32]byte, port uint16) (err error) {
	if m.nl == nil {
		if m.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
	}
	link, err := m.nl.LinkByName(m.name)
	made := false
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		if err = m.nl.LinkAdd(&netlink.Wireguard{LinkAttrs: netlink.LinkAttrs{Name: m.name, TxQLen: -1}}); err == nil {
			made = true
			link, err = m.nl.LinkByName(m.name)
		}
	}
	if err != nil {
		return fmt.Errorf("make device %s: %w", m.name, err)
	}
	defer func() {
		if err != nil && made {
			err = errors.Join(err, m.remove())
		}
	}()
	// The kernel is not to speak on it by itself, nor to listen.
	if err := quiet(m.name); err != nil {
		return err
	}
	if m.ctl == nil {
		// Not before there is a device: the part of the kernel that it talks to may come with it.
		if m.ctl, err = wgctrl.New(); err != nil {
			return fmt.Errorf("talk to WireGuard: %w", err)
		}
	}
	c := wgtypes.Config{PrivateKey: (*wgtypes.Key)(&private)}
	if port != 0 {
		n := int(port)
		c.ListenPort = &n
	}
	if err := m.ctl.ConfigureDevice(m.name, c); err != nil {
		return fmt.Errorf("set up device %s: %w", m.name, err)
	}
	if err := m.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("device %s: %w", m.name, err)
	}
	return m.listen(link.Attrs().Index)
}

func quiet(name string) error {
	path := "/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6"
	if err := os.WriteFile(path, []byte("1"), 0o644); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("device %s: %w", name, err)
	}
	return nil
}

// listen opens the socket by which questions go and answers come.
func (m *machine) listen(index int) error {
	const proto = uint16(unix.ETH_P_IPV6>>8 | unix.ETH_P_IPV6&0xff<<8) // in network order, on little-endian machines
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("packet socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: index}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("packet socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), m.name)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		f.Close()
		return fs.ErrClosed
	}
	if m.socket != nil {
		m.socket.Close()
	}
	m.socket = f
	return nil
}

func (m *machine) set(mtu int, peers map[wire.OverlayKey]*peerWish) error {
	if mtu != 0 {
		link, err := m.nl.LinkByName(m.name)
		if err != nil {
			return err
		}
		if link.Attrs().MTU != mtu {
			if err := m.nl.LinkSetMTU(link, mtu); err != nil {
				return fmt.Errorf("MTU of device %s: %w", m.name, err)
			}
		}
	}
	if len(peers) == 0 {
		return nil
	}
	var c wgtypes.Config
	for k, w := range peers {
		p := wgtypes.PeerConfig{PublicKey: wgtypes.Key(k)}
		if w == nil {
			p.Remove = true
		} else {
			p.ReplaceAllowedIPs = true
			p.AllowedIPs = []net.IPNet{{IP: w.prefix.Addr().AsSlice(), Mask: net.CIDRMask(w.prefix.Bits(), 128)}}
			if w.at.IsValid() {
				p.Endpoint = net.UDPAddrFromAddrPort(w.at)
			}
		}
		c.Peers = append(c.Peers, p)
	}
	if err := m.ctl.ConfigureDevice(m.name, c); err != nil {
		return fmt.Errorf("peers of device %s: %w", m.name, err)
	}
	return nil
}

func (m *machine) read() (r reading, err error) {
	d, err := m.ctl.Device(m.name)
	if errors.Is(err, os.ErrNotExist) {
		return r, errGone
	}
	if err != nil {
		return r, fmt.Errorf("read device %s: %w", m.name, err)
	}
	r.port, r.peers = uint16(d.ListenPort), make(map[wire.OverlayKey]peerReading, len(d.Peers))
	for _, p := range d.Peers {
		q := peerReading{rx: p.ReceiveBytes, tx: p.TransmitBytes, handshake: p.LastHandshakeTime}
		if p.LastHandshakeTime.Unix() <= 0 {
			q.handshake = time.Time{}
		}
		if p.Endpoint != nil {
			a := p.Endpoint.AddrPort()
			q.at = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
		}
		r.peers[wire.OverlayKey(p.PublicKey)] = q
	}
	return r, nil
}

func (m *machine) file() (*os.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.socket == nil || m.closed {
		return nil, fs.ErrClosed
	}
	return m.socket, nil
}

func (m *machine) send(b []byte) error {
	f, err := m.file()
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return err
}

func (m *machine) receive(b []byte) (int, error) {
	f, err := m.file()
	if err != nil {
		return 0, err
	}
	return f.Read(b)
}

func (m *machine) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	var err error
	if m.socket != nil {
		err = m.socket.Close()
	}
	if m.asking != nil {
		err = errors.Join(err, m.asking.Close())
	}
	if m.ctl != nil {
		err = errors.Join(err, m.ctl.Close())
	}
	if m.nl != nil {
		m.nl.Close()
	}
	return err
}

func (m *machine) remove() error {
	link, err := m.nl.LinkByName(m.name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = m.nl.LinkDel(link)
	}
	if err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("delete device %s: %w", m.name, err)
	}
	return nil
}

// Remove takes away the device that a worker may have.
func Remove(worker string) error {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("wireguard: open netlink: %w", err)
	}
	m := &machine{name: Device(worker), nl: nl}
	return errors.Join(m.remove(), m.close())
}
