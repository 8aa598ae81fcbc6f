package tunnel

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"time"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// Secret is a key that is not to be shown. As text it is base64, so that it can be sent; printing it shows nothing.
type Secret [32]byte

// String hides the key.
func (Secret) String() string { return "(secret)" }

// GoString hides the key.
func (Secret) GoString() string { return "(secret)" }

// MarshalText gives the key in base64.
func (s Secret) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, s[:]), nil
}

// UnmarshalText reads what MarshalText wrote.
func (s *Secret) UnmarshalText(b []byte) error {
	k, err := base64.StdEncoding.DecodeString(string(b))
	if err != nil || len(k) != len(s) {
		return fmt.Errorf("a key is 32 bytes in base64")
	}
	copy(s[:], k)
	return nil
}

// Public gives the public half of a private key.
func (s Secret) Public() (wire.OverlayKey, error) {
	id, err := newIdentity(s)
	return id.public, err
}

// Config is all that an Engine is to be.
type Config struct {
	ID         wire.PeerID `json:"id"` // this worker's; relays know it by that
	PrivateKey Secret      `json:"privateKey"`
	Port       uint16      `json:"port"` // UDP; 0: any that is free, kept until another is named
	Tap        string      `json:"tap"`  // made if it is not there; it stays when the Engine ends
	MTU        int         `json:"mtu"`  // of packets, in bytes; longer ones are dropped. 0: no limit but the tap's
	Relays     []Relay     `json:"relays,omitempty"`
	Peers      []Peer      `json:"peers,omitempty"`
	// Hidden are prefixes in which no address of this machine is told to peers as one where it can be reached, such as
	// those of instances.
	Hidden []netip.Prefix `json:"hidden,omitempty"`
}

// Relay is a relay at which this worker may register.
type Relay struct {
	Name string         `json:"name"`
	UDP  netip.AddrPort `json:"udp,omitzero"`
	TLS  netip.AddrPort `json:"tls,omitzero"` // TCP, for when UDP gets no answer
	// Pin is the SHA-256 of the public key (SubjectPublicKeyInfo) in the relay's certificate.
	Pin [32]byte `json:"pin,omitzero"`
	Key Secret   `json:"key"` // of this worker at this relay
}

// Peer is another worker, or a gateway.
type Peer struct {
	ID        wire.PeerID      `json:"id"`
	Name      string           `json:"name,omitempty"`
	Key       wire.OverlayKey  `json:"key"`
	Endpoints []netip.AddrPort `json:"endpoints,omitempty"` // where it may be reached, best first; at most 16
	Relays    []PeerRelay      `json:"relays,omitempty"`    // by which it may be reached, best first
	Prefixes  []netip.Prefix   `json:"prefixes"`            // what comes from it must have source addresses in these
	// Indirect: it is reached by relays alone, and neither end tells the other its addresses.
	Indirect bool `json:"indirect,omitempty"`
	// Keep: a session is kept though nothing is sent. Otherwise the first packet begins one.
	Keep bool `json:"keep,omitempty"`
}

// PeerRelay says by which relay a peer may be reached.
type PeerRelay struct {
	Relay string      `json:"relay"` // its name in Config.Relays
	ID    wire.PeerID `json:"id"`    // the peer's at that relay; 0: Peer.ID
}

// Timing is when an Engine does what. A zero field means its default.
type Timing struct {
	RekeyAfter  time.Duration // age of a session at which the end with the lower key begins the next; 2 minutes
	RejectAfter time.Duration // age at which a session ends; 3 minutes
	// RekeyMessages is the number of datagrams after which the next session is begun; 1<<32.
	RekeyMessages uint64
	KeepAlive     time.Duration // between pings of a path that is in use but idle; 20 s
	Probe         time.Duration // between pings of a path with traffic; 5 s
	Punch         time.Duration // between pings of addresses that have not answered yet, for the first ten; 300 ms
	Better        time.Duration // between later attempts to find a better path; 10 s
	Silence       time.Duration // after which a path that gives no answer to traffic is pinged; 600 ms
	Lost          time.Duration // after which a ping counts as lost; 400 ms, or four round trips
}

func (t Timing) filled() Timing {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&t.RekeyAfter, 2*time.Minute)
	def(&t.RejectAfter, t.RekeyAfter*3/2)
	def(&t.KeepAlive, 20*time.Second)
	def(&t.Probe, 5*time.Second)
	def(&t.Punch, 300*time.Millisecond)
	def(&t.Better, 10*time.Second)
	def(&t.Silence, 600*time.Millisecond)
	def(&t.Lost, 400*time.Millisecond)
	if t.RekeyMessages == 0 {
		t.RekeyMessages = 1 << 32
	}
	return t
}

// Check says what is wrong with a configuration.
func (c Config) Check() error {
	if c.Tap == "" || len(c.Tap) > 15 {
		return fmt.Errorf("tap %q: the name of a device has 1 to 15 characters", c.Tap)
	}
	if c.PrivateKey == (Secret{}) {
		return fmt.Errorf("privateKey is empty; give the worker's own")
	}
	if c.MTU < 0 || c.MTU > 0 && c.MTU < 576 {
		return fmt.Errorf("mtu %d: packets are at least 576 bytes; 0 means no limit", c.MTU)
	}
	relays := map[string]bool{}
	for i, r := range c.Relays {
		if r.Name == "" || relays[r.Name] {
			return fmt.Errorf("relays[%d].name %q is empty or there twice", i, r.Name)
		}
		if !r.UDP.IsValid() && !r.TLS.IsValid() {
			return fmt.Errorf("relays[%d]: %s has neither a udp nor a tls address", i, r.Name)
		}
		if r.TLS.IsValid() && r.Pin == ([32]byte{}) {
			return fmt.Errorf("relays[%d].pin of %s is empty; give the hash of the public key in its certificate", i, r.Name)
		}
		relays[r.Name] = true
	}
	ids, keys := map[wire.PeerID]bool{}, map[wire.OverlayKey]bool{}
	for i, p := range c.Peers {
		switch {
		case p.ID == 0 || ids[p.ID]:
			return fmt.Errorf("peers[%d].id %d is zero or there twice", i, p.ID)
		case p.Key == (wire.OverlayKey{}) || keys[p.Key]:
			return fmt.Errorf("peers[%d].key of %d is empty or there twice: a key names one peer", i, p.ID)
		case len(p.Endpoints) > maxCandidates:
			return fmt.Errorf("peers[%d].endpoints: %d addresses, but at most %d", i, len(p.Endpoints), maxCandidates)
		}
		for j, r := range p.Relays {
			if !relays[r.Relay] {
				return fmt.Errorf("peers[%d].relays[%d]: no relay is called %q", i, j, r.Relay)
			}
		}
		ids[p.ID], keys[p.Key] = true, true
	}
	return nil
}

// Status is what an Engine tells.
type Status struct {
	Port      uint16                `json:"port"`
	Cipher    string                `json:"cipher"`              // the best of this machine
	Candidate []netip.AddrPort      `json:"candidate,omitempty"` // where this worker may be reached, as far as it knows
	Relays    []overlay.RelayStatus `json:"relays,omitempty"`
	Peers     []overlay.PathStatus  `json:"peers,omitempty"`
	Counters  map[string]int64      `json:"counters,omitempty"` // those that begin with "drop-" are of what was dropped
}

// EventKind says what an Engine came upon.
type EventKind string

// Kinds of events.
const (
	// EventUnknown: a peer says that it has no instance with an address, so that routes to it are old.
	EventUnknown EventKind = "unknown"
	// EventPath: the way to a peer is another one now.
	EventPath EventKind = "path"
	// EventAddress: where this worker may be reached has changed; Status tells.
	EventAddress EventKind = "address"
)

// Event is something that an Engine came upon.
type Event struct {
	Kind EventKind        `json:"kind"`
	Peer wire.PeerID      `json:"peer,omitempty"`
	Net  wire.NetworkID   `json:"net,omitempty"`
	Addr netip.Addr       `json:"addr,omitzero"`
	Path overlay.PathKind `json:"path,omitempty"`
}
