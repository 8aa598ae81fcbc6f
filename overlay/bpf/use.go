//go:build linux

package bpf

import (
	"fmt"

	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/wire"
)

// InUse gives the service addresses that flows lead to now. It reads both tables of flows, which takes a microsecond for
// each entry, so it is for now and then.
func (d *Device) InUse() (map[overlay.ServiceAddr]bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}
	out := map[overlay.ServiceAddr]bool{}
	for _, name := range []string{"tcp", "other"} {
		var k flowKey
		var v flowValue
		it := d.coll.Maps[name].Iterate()
		for it.Next(&k, &v) {
			if k.Net != 0 { // those that lead back have none
				out[overlay.ServiceAddr{Net: wire.NetworkID(k.Net), Addr: from16(k.To)}] = true
			}
		}
		// A table that changes much while it is read is not read to its end; what was seen counts.
		if err := it.Err(); err != nil && len(out) == 0 {
			return out, fmt.Errorf("overlay: read flows: %w", err)
		}
	}
	return out, nil
}
