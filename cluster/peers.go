package cluster

import (
	"iter"

	"skerry.dev/skerry/wire"
)

// members is what network sees of a site.
type members struct{ b *books }

// Reachable implements network.Members.
func (m members) Reachable() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, w := range m.b.workers {
			if w.reachable() && !yield(name, w.Facts.Probe) {
				return
			}
		}
	}
}

// Measuring implements network.Members.
func (m members) Measuring() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, w := range m.b.workers {
			if w.Facts != nil && m.b.Kids.Get(name) != nil && !yield(name) {
				return
			}
		}
	}
}

// Tell implements network.Members.
func (m members) Tell(worker string, p *wire.Peers) bool {
	if p == nil {
		m.b.Kids.Delete(worker, wire.PeersKey)
		return true
	}
	return m.b.Kids.Put(worker, wire.PeersKey, m.b.codec.Marshal(p)) == nil
}
