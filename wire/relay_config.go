package wire

import (
	"fmt"
	"net/netip"
)

// RelayConfig is whom the relay of a site serves.
type RelayConfig struct {
	Workers []RelayWorker `json:"workers"`
	// Relays are those of other sites with which datagrams are exchanged, Routes the workers and gateways behind them.
	Relays []RelaySite  `json:"relays,omitempty"`
	Routes []RelayRoute `json:"routes,omitempty"`
}

// RelayWorker may register.
type RelayWorker struct {
	ID PeerID `json:"id"`
	// Keys are the worker's: at most two, while one replaces the other.
	Keys [][32]byte `json:"keys"`
	// Rate is how many bytes a second it may send; 0: as many as others.
	Rate int64 `json:"rate,omitempty"`
}

// RelaySite is another site's relay.
type RelaySite struct {
	Name string         `json:"name"`
	Addr netip.AddrPort `json:"addr"` // UDP, where it sends from and receives, unless it registers from elsewhere: behind a NAT it must
	Key  [32]byte       `json:"key"`  // of the two relays
	Rate int64          `json:"rate,omitempty"`
}

// RelayRoute gives a worker or gateway of another site an ID here.
type RelayRoute struct {
	ID     PeerID `json:"id"`    // here; no worker has it
	Relay  string `json:"relay"` // the name of a RelaySite
	Remote PeerID `json:"remote"`
}

// Check says what is wrong with a configuration.
func (c RelayConfig) Check() error {
	ids := map[PeerID]bool{}
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
