// Package relay forwards sealed datagrams between workers that cannot reach each other, and tells each worker its address
// as others see it, so that most of them soon can. The cluster orchestrator runs a Server. It knows which workers there are
// and a key of each, nothing of what they send: that is sealed from end to end. It never holds more than a bounded amount
// of memory, never answers who has no key, and forwards no faster than it is allowed to.
package relay

import (
	"errors"
	"fmt"
	"net/netip"

	"skerry.dev/skerry/wire"
)

// Config is whom a Server serves.
type Config struct {
	Workers []Worker `json:"workers"`
	// Relays are those of other sites with which datagrams are exchanged, Routes the workers and gateways behind them.
	Relays []Relay `json:"relays,omitempty"`
	Routes []Route `json:"routes,omitempty"`
}

// Worker may register.
type Worker struct {
	ID wire.PeerID `json:"id"`
	// Keys are the worker's: at most two, while one replaces the other.
	Keys [][32]byte `json:"keys"`
	// Rate is how many bytes a second it may send; 0: Options.Rate.
	Rate int64 `json:"rate,omitempty"`
}

// Relay is another site's relay.
type Relay struct {
	Name string         `json:"name"`
	Addr netip.AddrPort `json:"addr"` // UDP, where it sends from and receives, unless it registers from elsewhere: behind a NAT it must
	Key  [32]byte       `json:"key"`  // of the two relays
	Rate int64          `json:"rate,omitempty"`
}

// Route gives a worker or gateway of another site an ID here.
type Route struct {
	ID     wire.PeerID `json:"id"`    // here; no worker has it
	Relay  string      `json:"relay"` // the name of a Relay
	Remote wire.PeerID `json:"remote"`
}

// Check says what is wrong with a configuration.
func (c Config) Check() error {
	ids := map[wire.PeerID]bool{}
	for i, w := range c.Workers {
		if w.ID == 0 || ids[w.ID] {
			return fmt.Errorf("workers[%d].id %d is zero or there twice", i, w.ID)
		}
		if len(w.Keys) == 0 || len(w.Keys) > 2 {
			return fmt.Errorf("workers[%d].keys: worker %d has %d keys; give one, or two while one replaces the other", i, w.ID, len(w.Keys))
		}
		ids[w.ID] = true
	}
	relays := map[string]bool{}
	for i, r := range c.Relays {
		if r.Name == "" || relays[r.Name] {
			return fmt.Errorf("relays[%d].name %q is empty or there twice", i, r.Name)
		}
		if !r.Addr.IsValid() || r.Key == ([32]byte{}) {
			return fmt.Errorf("relays[%d]: %s needs an address and a key", i, r.Name)
		}
		relays[r.Name] = true
	}
	for i, r := range c.Routes {
		if r.ID == 0 || ids[r.ID] {
			return fmt.Errorf("routes[%d].id %d is zero, a worker's, or there twice", i, r.ID)
		}
		if !relays[r.Relay] {
			return fmt.Errorf("routes[%d].relay: no relay is called %q", i, r.Relay)
		}
		ids[r.ID] = true
	}
	return nil
}

// Stats are counters since the Server began.
type Stats struct {
	Registered int              `json:"registered"` // workers, now
	Streams    int              `json:"streams"`    // TLS connections, now
	Counters   map[string]int64 `json:"counters"`   // those that begin with "drop-" are of what was dropped
}

var errStream = errors.New("what came is no frame")
