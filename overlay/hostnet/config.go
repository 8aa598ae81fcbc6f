package hostnet

import (
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/internal/kernel"
	"skerry.dev/skerry/spec"
)

// Options configure the network of one worker. Name, StateDir and RunDir are required.
type Options struct {
	// Name is the worker's; interfaces and the table are named after it, so that workers on one kernel do not collide.
	Name string
	// Subnet is an IPv4 prefix of 16 to 29 bits for the instances; its first address is the bridge's. The zero value
	// takes the first /24 of 10.31.0.0/16 that no route of the host overlaps, and keeps it.
	Subnet netip.Prefix
	// OpenHost lets instances reach the host's own services and the networks of its links, as if they were processes of the host.
	OpenHost bool
	// Closed are further networks that instances do not reach through the host, such as that of its other machines.
	Closed []netip.Prefix
	// StateDir keeps the addresses over restarts. RunDir holds the namespaces, which end with the machine's uptime; it
	// is best below /run.
	StateDir string
	RunDir   string
	// NetNS is the path of the namespace that counts as the host; empty means the one that New is called in.
	NetNS string
	// ResolvConf is the file whose name servers are handed on; /etc/resolv.conf when empty.
	ResolvConf string
	// Flows is how many connections the kernel has room for; 0 asks it. Instances together begin half as many at most.
	Flows int
	Log   *slog.Logger // may be nil
}

// Config is all that the network is to be.
type Config struct {
	Attachments []Want
	// Overlay, unless nil, gives new attachments addresses of the overlay in place of the worker's own subnet.
	Overlay *Overlay
}

// Overlay is what the overlay says of a worker's addresses. The bridge keeps its address of the worker's own subnet: it is
// the gateway, and the name server, of every instance.
type Overlay struct {
	// Blocks are IPv4 prefixes of 26 to 29 bits. Instances have single addresses out of them, and reach everything
	// through the gateway, their neighbours too: so whoever watches their cables sees all that they send.
	Blocks []netip.Prefix
	// V6, if valid, is of 64 bits; the low half of an instance's address in it is its IPv4 address.
	V6 netip.Prefix
	// Overhead is how much smaller than the host's the MTU of instances is, in bytes.
	Overhead int
	// Resolver: instances ask the gateway for names.
	Resolver bool
}

func (f *Overlay) check() error {
	if f == nil {
		return nil
	}
	for i, b := range f.Blocks {
		if !b.Addr().Is4() || b.Bits() < 26 || b.Bits() > 29 || b != b.Masked() {
			return fmt.Errorf("block %s must be an IPv4 prefix of 26 to 29 bits", b)
		}
		for _, o := range f.Blocks[:i] {
			if o.Overlaps(b) {
				return fmt.Errorf("blocks %s and %s overlap", o, b)
			}
		}
	}
	if f.V6.IsValid() && (!f.V6.Addr().Is6() || f.V6.Bits() != 64) {
		return fmt.Errorf("prefix %s must be an IPv6 prefix of 64 bits", f.V6)
	}
	if f.Overhead < 0 || f.Overhead > 512 {
		return fmt.Errorf("an overhead of %d bytes makes no sense", f.Overhead)
	}
	return nil
}

// v6 is the IPv6 address that goes with an IPv4 one.
func (f *Overlay) v6(a netip.Addr) netip.Addr {
	b, low := f.V6.Addr().As16(), a.As4()
	copy(b[12:], low[:])
	return netip.AddrFrom16(b)
}

// Want is one instance's attachment. ID is of letters, digits and "._-", at most 200 bytes.
type Want struct {
	ID        string
	HostPorts []HostPort
	// ServicePorts are translated inside the instance's namespace.
	ServicePorts []ServicePort
	// In and Out limit what the instance receives and sends, in bytes per second; 0 is no limit.
	In, Out skerry.Bytes
	// Egress is where it may go outside the overlay; nil is no policy.
	Egress *spec.Egress
}

// ServicePort leads what arrives at one port of the instance to another.
type ServicePort struct {
	From, To uint16
	Proto    Proto
}

// HostPort hands connections to a port of the host on to a port of the instance.
type HostPort struct {
	// HostIP is one of the host's addresses; the zero value means all of them.
	HostIP   netip.Addr
	HostPort uint16
	Port     uint16
	Proto    Proto
}

// Proto is a transport protocol; empty means TCP.
type Proto string

// The protocols of host ports.
const (
	TCP Proto = "tcp"
	UDP Proto = "udp"
)

func (p Proto) orTCP() Proto {
	if p == "" {
		return TCP
	}
	return p
}

func (p HostPort) String() string {
	host := "*"
	if p.HostIP.IsValid() {
		host = p.HostIP.String()
	}
	return fmt.Sprintf("%s:%d/%s", host, p.HostPort, p.Proto.orTCP())
}

// Stats are an attachment's counters as the instance sees them: Rx is what it received.
type Stats struct {
	RxBytes, TxBytes     skerry.Bytes
	RxPackets, TxPackets uint64
}

// Unsupported says that this machine, or the agent's privileges, do not allow networking of this kind.
type Unsupported struct {
	Reason, Cure string
}

func (u *Unsupported) Error() string { return u.Reason + "; " + u.Cure }

// AttachError says which attachment is not as it should be, and why. Others are not affected by it.
type AttachError struct {
	ID  string
	Err error
}

func (e *AttachError) Error() string { return fmt.Sprintf("attach %s: %v", e.ID, e.Err) }
func (e *AttachError) Unwrap() error { return e.Err }

func (o *Options) check() error {
	if o.Name == "" {
		return fmt.Errorf("hostnet: option Name is missing; give the worker's name")
	}
	for name, dir := range map[string]string{"StateDir": o.StateDir, "RunDir": o.RunDir} {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("hostnet: option %s %q must be an absolute path", name, dir)
		}
	}
	if o.Subnet.IsValid() {
		if !o.Subnet.Addr().Is4() || o.Subnet.Bits() < 16 || o.Subnet.Bits() > 29 {
			return fmt.Errorf("hostnet: option Subnet %s must be an IPv4 prefix of 16 to 29 bits", o.Subnet)
		}
		o.Subnet = o.Subnet.Masked()
	}
	if o.ResolvConf == "" {
		o.ResolvConf = "/etc/resolv.conf"
	}
	return nil
}

func (o *Options) prefix() string { return kernel.DevicePrefix(o.Name) }

func (o *Options) bridge() string { return o.prefix() }

// mac is the bridge's hardware address. A bridge without one takes the lowest of its ports and changes it when ports
// come and go, and instances would send to where nobody is until their neighbour entries expire.
func (o *Options) mac() net.HardwareAddr {
	h := fnv.New64a()
	h.Write([]byte(o.Name))
	b := h.Sum(nil)
	return net.HardwareAddr{0x02, b[0], b[1], b[2], b[3], b[4]}
}

// table is the name of the nftables table.
func (o *Options) table() string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, o.Name)
	return "skerry_" + clean[:min(len(clean), 60)]
}

// check finds what is wrong with a configuration as a whole. Host ports that clash are an error of the later want.
func (c Config) check() error {
	if err := c.Overlay.check(); err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, w := range c.Attachments {
		if !validID(w.ID) {
			return fmt.Errorf("attachment ID %q is not valid; use letters, digits, and inner '.', '_', '-', at most 200", w.ID)
		}
		if ids[w.ID] {
			return fmt.Errorf("attachment %s is there twice", w.ID)
		}
		ids[w.ID] = true
	}
	return nil
}

func validID(id string) bool {
	if id == "" || len(id) > 200 {
		return false
	}
	for i, c := range []byte(id) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return false
		}
	}
	return true
}

// mapping is a host port with where it leads.
type mapping struct {
	HostPort
	id string
	to netip.Addr
}

// claims decides which want gets which host port: the first one. The others get an error.
func claims(wants []Want, addr func(id string) netip.Addr) (ms []mapping, errs map[string]error) {
	errs = map[string]error{}
	for _, want := range wants {
		for _, p := range want.HostPorts {
			p.Proto = p.Proto.orTCP()
			if p.HostIP.IsUnspecified() {
				p.HostIP = netip.Addr{}
			}
			err := func() error {
				switch {
				case p.Proto != TCP && p.Proto != UDP:
					return fmt.Errorf("protocol %q of host port %d is unknown; use tcp or udp", p.Proto, p.HostPort)
				case p.HostPort == 0 || p.Port == 0:
					return fmt.Errorf("host port %d to %d: a port is 1 to 65535", p.HostPort, p.Port)
				case p.HostIP.IsValid() && !p.HostIP.Is4():
					return fmt.Errorf("host port %s: only IPv4 addresses are supported", p)
				}
				i := slices.IndexFunc(ms, func(m mapping) bool {
					same := m.HostIP == p.HostIP || !m.HostIP.IsValid() || !p.HostIP.IsValid()
					return same && m.HostPort.HostPort == p.HostPort && m.Proto == p.Proto
				})
				if i >= 0 {
					return fmt.Errorf("host port %s is taken by %s; choose another one", p, ms[i].id)
				}
				return nil
			}()
			if err != nil {
				if errs[want.ID] == nil {
					errs[want.ID] = err
				}
				continue
			}
			ms = append(ms, mapping{p, want.ID, addr(want.ID)})
		}
	}
	return ms, errs
}
