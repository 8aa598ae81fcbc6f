// Package held keeps packets for a moment of which the destination is not known yet, for the data planes.
package held

import (
	"net/netip"
	"sync"
	"time"
)

const (
	holdFor = time.Second
	each    = 16 // packets for one destination
	again   = time.Second

	// All is how many packets are held, and for how many destinations; half of it for one network, so that no application
	// takes all.
	All = 1024
)

// Target is a destination in a network.
type Target struct {
	Net uint32
	Dst netip.Addr
}

type waiting struct {
	frames [][]byte
	since  time.Time
	told   time.Time
}

// Packets are those of which the destination is not known. Several goroutines may use them.
type Packets struct {
	mu     sync.Mutex
	by     map[Target]*waiting
	frames int
}

// New gives a place for packets, without any.
func New() *Packets { return &Packets{by: map[Target]*waiting{}} }

// Hold keeps a copy of a packet for a second, if there is room, and says whether its destination is to be told: at most once
// a second for each.
func (h *Packets) Hold(t Target, frame []byte, now time.Time) (tell bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	w := h.by[t]
	targets, frames := h.of(t.Net)
	if w == nil {
		if len(h.by) >= All || targets >= All/2 {
			return false // told again with the next packet
		}
		w = &waiting{since: now}
		h.by[t] = w
	}
	if len(w.frames) == 0 {
		w.since = now
	}
	if len(w.frames) < each && h.frames < All && frames < All/2 {
		w.frames = append(w.frames, append([]byte(nil), frame...))
		h.frames++
	}
	if now.Sub(w.told) >= again {
		w.told = now
		return true
	}
	return false
}

// of counts a network's destinations and packets.
func (h *Packets) of(net uint32) (targets, frames int) {
	for t, w := range h.by {
		if t.Net == net {
			targets++
			frames += len(w.frames)
		}
	}
	return targets, frames
}

// expire forgets what was held for too long.
func (h *Packets) expire(now time.Time) {
	for t, w := range h.by {
		if now.Sub(w.since) > holdFor {
			h.frames -= len(w.frames)
			w.frames = nil
			if now.Sub(w.told) >= again {
				delete(h.by, t)
			}
		}
	}
}

// Take gives the packets of which the destination is known by now, and forgets them.
func (h *Packets) Take(now time.Time, known func(Target) bool) (out [][]byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire(now)
	for t, w := range h.by {
		if len(w.frames) > 0 && known(t) {
			out = append(out, w.frames...)
			h.frames -= len(w.frames)
			delete(h.by, t)
		}
	}
	return out
}

// Forget drops all packets, and what was told.
func (h *Packets) Forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.by)
	h.frames = 0
}
