package ipam

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"skerry.dev/skerry"
)

// Instances are the addresses of a worker's instances, out of its blocks. The zero value holds none.
type Instances struct {
	held    map[string]netip.Addr
	holder  map[netip.Addr]string
	resting map[netip.Addr]time.Time
	next    netip.Addr // where the search goes on, so that addresses rest for as long as there are others
}

// Take gives an instance an address, or the one that it has. When every address of the blocks is in use or rests the
// error has code full, and the worker needs a further block.
func (s *Instances) Take(now time.Time, id string, blocks []netip.Prefix) (netip.Addr, error) {
	if a, ok := s.held[id]; ok {
		return a, nil
	}
	if s.held == nil {
		s.held, s.holder, s.resting = map[string]netip.Addr{}, map[netip.Addr]string{}, map[netip.Addr]time.Time{}
	}
	maps.DeleteFunc(s.resting, func(_ netip.Addr, until time.Time) bool { return !now.Before(until) })
	blocks = slices.SortedFunc(slices.Values(blocks), func(p, q netip.Prefix) int { return p.Addr().Compare(q.Addr()) })
	// From next to the end, then from the start.
	for _, behind := range []bool{true, false} {
		for _, b := range blocks {
			for a := b.Masked().Addr(); b.Contains(a); a = a.Next() {
				if a.Less(s.next) == behind {
					continue
				}
				_, taken := s.holder[a]
				if _, rests := s.resting[a]; !taken && !rests {
					s.held[id], s.holder[a], s.next = a, id, a.Next()
					return a, nil
				}
			}
		}
	}
	return netip.Addr{}, skerry.Errorf(skerry.CodeFull, "no address is left for instance %s: %d are in use and %d rest", id, len(s.held), len(s.resting)).
		WithHint("the worker needs a further block of addresses")
}

// Return takes an instance's address back; it rests until the time given. It gives false if the instance has none.
func (s *Instances) Return(id string, until time.Time) bool {
	a, ok := s.held[id]
	if ok {
		delete(s.held, id)
		delete(s.holder, a)
		s.resting[a] = until
	}
	return ok
}

// Of gives an instance's address.
func (s *Instances) Of(id string) (netip.Addr, bool) {
	a, ok := s.held[id]
	return a, ok
}

// Holder tells which instance has an address.
func (s *Instances) Holder(a netip.Addr) (string, bool) {
	id, ok := s.holder[a]
	return id, ok
}

// Unused lists those blocks of which no address is in use or rests, for giving them back.
func (s *Instances) Unused(now time.Time, blocks []netip.Prefix) (out []netip.Prefix) {
next:
	for _, b := range blocks {
		for a := range s.holder {
			if b.Contains(a) {
				continue next
			}
		}
		for a, until := range s.resting {
			if b.Contains(a) && now.Before(until) {
				continue next
			}
		}
		out = append(out, b)
	}
	return out
}

// storedInstance is one entry of the stored form; ID is empty for those that rest.
type storedInstance struct {
	Addr  netip.Addr `json:"address"`
	ID    string     `json:"id,omitempty"`
	Until time.Time  `json:"restsUntil,omitzero"`
}

type storedInstances struct {
	Next netip.Addr       `json:"next,omitzero"`
	List []storedInstance `json:"list"`
}

// MarshalJSON gives the stored form; equal states are equal bytes.
func (s Instances) MarshalJSON() ([]byte, error) {
	out := storedInstances{s.next, []storedInstance{}}
	for a, id := range s.holder {
		out.List = append(out.List, storedInstance{a, id, time.Time{}})
	}
	for a, until := range s.resting {
		out.List = append(out.List, storedInstance{a, "", until})
	}
	slices.SortFunc(out.List, func(x, y storedInstance) int { return x.Addr.Compare(y.Addr) })
	return json.Marshal(out)
}

// UnmarshalJSON reads the stored form, and refuses one in which an address or an instance appears twice.
func (s *Instances) UnmarshalJSON(data []byte) error {
	var in storedInstances
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	n := Instances{map[string]netip.Addr{}, map[netip.Addr]string{}, map[netip.Addr]time.Time{}, in.Next}
	for _, e := range in.List {
		_, rests := n.resting[e.Addr]
		if _, held := n.holder[e.Addr]; held || rests {
			return fmt.Errorf("address %s is stored twice", e.Addr)
		}
		if e.ID == "" {
			n.resting[e.Addr] = e.Until
			continue
		}
		if _, twice := n.held[e.ID]; twice {
			return fmt.Errorf("instance %s has two stored addresses", e.ID)
		}
		n.held[e.ID], n.holder[e.Addr] = e.Addr, e.ID
	}
	*s = n
	return nil
}
