package hostnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"skerry.dev/skerry/internal/files"
)

// state is what outlives the agent: who has which address.
type state struct {
	Subnet netip.Prefix          `json:"subnet"`
	Addrs  map[string]netip.Addr `json:"addrs"`
	// Last is the address given out most recently. The next one is above it, so that an address rests for a while
	// before somebody else gets it, with the connections meant for its former owner.
	Last netip.Addr `json:"last"`
	// Blocks are those that addresses were ever given from, in the order in which they came: interfaces are named after
	// the position. One that is no longer ours is replaced by a new one when nobody has an address of it.
	Blocks []netip.Prefix `json:"blocks,omitempty"`
	// LastOf is Last for blocks.
	LastOf netip.Addr `json:"lastOf,omitzero"`
}

func stateFile(o *Options) string { return filepath.Join(o.StateDir, "hostnet.json") }

// loadState reads the state; a file that makes no sense counts as none, because addresses can be given anew.
func loadState(o *Options) (*state, error) {
	s := &state{}
	data, err := os.ReadFile(stateFile(o))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		s = parseState(data)
	}
	if o.Subnet.IsValid() && s.Subnet != o.Subnet {
		s = &state{Subnet: o.Subnet}
	}
	if s.Addrs == nil {
		s.Addrs = map[string]netip.Addr{}
	}
	return s, nil
}

// parseState reads a state file and drops what contradicts itself.
func parseState(data []byte) *state {
	s := &state{}
	if json.Unmarshal(data, s) != nil || !s.Subnet.IsValid() || !s.Subnet.Addr().Is4() || s.Subnet.Bits() < 16 || s.Subnet.Bits() > 29 ||
		s.Subnet != s.Subnet.Masked() {
		return &state{}
	}
	if len(s.Blocks) > maxBlocks || (Config{Overlay: &Overlay{Blocks: s.Blocks}}).check() != nil {
		s.Blocks = nil
	}
	used := map[netip.Addr]bool{s.gateway(): true, s.broadcast(): true, s.Subnet.Addr(): true}
	for id, a := range s.Addrs {
		if !validID(id) || !s.Subnet.Contains(a) && s.block(a) < 0 || used[a] {
			delete(s.Addrs, id)
		}
		used[a] = true
	}
	return s
}

// save writes the state. It is not synced: after a power failure no instance is left that has an address.
func (s *state) save(o *Options) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return files.Swap(stateFile(o), data, 0o600)
}

func (s *state) gateway() netip.Addr { return s.Subnet.Addr().Next() }

func (s *state) broadcast() netip.Addr {
	b := s.Subnet.Addr().As4()
	host := uint32(1)<<(32-s.Subnet.Bits()) - 1
	for i := range b {
		b[i] |= byte(host >> (24 - 8*i))
	}
	return netip.AddrFrom4(b)
}

// number is the position of an address in the subnet; it names the instance's interface.
func (s *state) number(a netip.Addr) uint32 {
	x, y := s.Subnet.Addr().As4(), a.As4()
	n := func(b [4]byte) uint32 { return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]) }
	return n(y) - n(x)
}

// maxBlocks is what the names of interfaces have room for, at 64 addresses each.
const maxBlocks = 1024

// block is the position of the block that an address is of, or -1.
func (s *state) block(a netip.Addr) int {
	return slices.IndexFunc(s.Blocks, func(b netip.Prefix) bool { return b.Contains(a) })
}

// device ends the name of an address's interface.
func (s *state) device(a netip.Addr) string {
	if i := s.block(a); i >= 0 {
		x, y := s.Blocks[i].Addr().As4(), a.As4()
		return fmt.Sprintf("b%04x", i<<6|int(y[3]-x[3]))
	}
	return fmt.Sprint(s.number(a))
}

// hold takes blocks up, in place of those that nobody uses any more.
func (s *state) hold(blocks []netip.Prefix) error {
	for _, block := range blocks {
		if slices.Contains(s.Blocks, block) {
			continue
		}
		free := slices.IndexFunc(s.Blocks, func(o netip.Prefix) bool {
			if slices.Contains(blocks, o) {
				return false
			}
			for _, a := range s.Addrs {
				if o.Contains(a) {
					return false
				}
			}
			return true
		})
		for i, o := range s.Blocks {
			if i != free && o.Overlaps(block) {
				return fmt.Errorf("block %s overlaps %s, of which instances still have addresses", block, o)
			}
		}
		switch {
		case free >= 0:
			s.Blocks[free] = block
		case len(s.Blocks) < maxBlocks:
			s.Blocks = append(s.Blocks, block)
		default:
			return fmt.Errorf("more than %d blocks of addresses", maxBlocks)
		}
	}
	return nil
}

// allocateOf gives an ID its address out of blocks; all their addresses count, because nothing is broadcast there.
func (s *state) allocateOf(id string, blocks []netip.Prefix) (netip.Addr, error) {
	used := map[netip.Addr]bool{}
	for _, a := range s.Addrs {
		used[a] = true
	}
	start := slices.IndexFunc(blocks, func(b netip.Prefix) bool { return s.LastOf.IsValid() && b.Contains(s.LastOf) })
	var first netip.Addr
	try := func(from netip.Addr, in netip.Prefix) bool {
		for a := from; in.Contains(a); a = a.Next() {
			if !used[a] {
				first = a
				return true
			}
		}
		return false
	}
	ok := start >= 0 && try(s.LastOf.Next(), blocks[start])
	for i := 0; !ok && i < len(blocks); i++ {
		b := blocks[(start+1+i)%len(blocks)]
		ok = try(b.Addr(), b)
	}
	if !ok {
		return first, fmt.Errorf("all addresses of the worker's %d blocks are taken; the cluster gives it another one soon", len(blocks))
	}
	s.Addrs[id], s.LastOf = first, first
	return first, nil
}

// allocate gives an ID its address.
func (s *state) allocate(id string) (netip.Addr, error) {
	if a, ok := s.Addrs[id]; ok {
		return a, nil
	}
	used := map[netip.Addr]bool{}
	for _, a := range s.Addrs {
		used[a] = true
	}
	first, end := s.gateway().Next(), s.broadcast()
	a := s.Last.Next()
	if !s.Last.IsValid() || !s.Subnet.Contains(a) || a.Less(first) {
		a = first
	}
	for range uint32(1) << (32 - s.Subnet.Bits()) {
		if a == end {
			a = first
		}
		if !used[a] {
			s.Addrs[id], s.Last = a, a
			return a, nil
		}
		a = a.Next()
	}
	return netip.Addr{}, fmt.Errorf("all %d addresses of %s are taken; give the worker a larger subnet", len(used), s.Subnet)
}
