package wireguard

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/relay/frame"
)

// Behind a NAT the port of the device looks like another one from outside, and like another one than the datapath's. What a relay
// sees of it is found out by the question with which a datapath begins to register: its answer tells, and registers nothing. It is
// sent from the device's port, beside the kernel that holds it; the answer comes to both, and WireGuard drops it.

const (
	// locateBehind is how often a relay is asked while there is a NAT, which forgets a port that is not used, or a peer is not reached;
	// locateOpen otherwise.
	locateBehind = 20 * time.Second
	locateOpen   = 5 * time.Minute
	locateWait   = 500 * time.Millisecond // for an answer
	locateTries  = 3
)

// Reflexive is where relays see the device's port; the zero value: it is not known, or there is no translation.
func (l *Link) Reflexive() netip.AddrPort {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reflexive
}

// locate asks relays from time to time, as long as there are peers.
func (l *Link) locate() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.end:
			return
		case <-l.moved:
		case <-timer.C:
		}
		l.mu.Lock()
		relays, port, peers := slices.Clone(l.relays), l.port, len(l.peers)
		l.mu.Unlock()
		if len(relays) == 0 || peers == 0 {
			continue // Set says when there are
		}
		every := locateOpen
		seen, local, err := l.seenBy(relays, port)
		if err != nil {
			l.log.Debug("how relays see the port of WireGuard", "err", err)
			every = locateBehind
		} else {
			if seen == local {
				seen = netip.AddrPort{}
			}
			l.mu.Lock()
			turned := l.reflexive != seen
			l.reflexive = seen
			if seen.IsValid() || l.seekingLocked() {
				every = locateBehind
			}
			l.mu.Unlock()
			if turned {
				l.turn()
			}
		}
		timer.Stop()
		timer.Reset(every)
	}
}

// seekingLocked reports whether a peer is not reached where it may be: this worker may be where its NAT is another.
func (l *Link) seekingLocked() bool {
	for _, s := range l.peers {
		if s.At.IsValid() && (s.judge == nil || !s.up) {
			return true
		}
	}
	return false
}

// seenBy asks one relay after the other.
func (l *Link) seenBy(relays []Relay, port uint16) (seen, local netip.AddrPort, err error) {
	err = errors.New("no relay is reached by IPv4")
	for _, r := range relays {
		if !r.UDP.Addr().Unmap().Is4() {
			continue
		}
		for range locateTries {
			var b [8]byte
			_, _ = rand.Read(b[:])
			q := frame.Register{Peer: r.ID, Nonce: binary.NativeEndian.Uint64(b[:])}
			var from netip.Addr
			from, err = l.k.ask(port, r.UDP, q.Append(nil, r.Key), locateWait, func(b []byte) bool {
				a, ok := frame.ParseRegister(b)
				if ok = ok && a.Answer && a.Nonce == q.Nonce && a.Peer == q.Peer && a.Addr.IsValid() && frame.CheckRegister(b, r.Key); ok {
					seen = a.Addr
				}
				return ok
			})
			if err == nil {
				return seen, netip.AddrPortFrom(from, port), nil
			}
			select {
			case <-l.end:
				return seen, local, err
			default:
			}
		}
	}
	return seen, local, err
}

// ask sends a datagram from a port that the kernel itself holds, and waits for one back that is taken. It gives the address that it
// was sent from.
func (m *machine) ask(port uint16, to netip.AddrPort, payload []byte, wait time.Duration, take func([]byte) bool) (from netip.Addr,
	err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_UDP)
	if err != nil {
		return from, fmt.Errorf("raw socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "raw")
	defer file.Close()
	// It then gets what comes from there alone.
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().Unmap().As4()}); err != nil {
		return from, fmt.Errorf("raw socket: %w", err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		return from, fmt.Errorf("raw socket: %w", err)
	}
	local, ok := sa.(*unix.SockaddrInet4)
	if !ok {
		return from, fs.ErrInvalid
	}
	from = netip.AddrFrom4(local.Addr)
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return from, fs.ErrClosed
	}
	m.asking = file
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.asking = nil
		m.mu.Unlock()
	}()
	if err := file.SetDeadline(time.Now().Add(wait)); err != nil {
		return from, err
	}
	if _, err := file.Write(datagram(netip.AddrPortFrom(from, port), to, payload)); err != nil {
		return from, err
	}
	b := make([]byte, 2048)
	for {
		n, err := file.Read(b)
		if err != nil {
			return from, fmt.Errorf("no answer of %s: %w", to, err)
		}
		if p, ok := payloadOf(b[:n], to.Port(), port); ok && take(p) {
			return from, nil
		}
	}
}
