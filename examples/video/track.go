package main

import (
	"math"

	"skerry.dev/skerry/examples/video/vision"
)

// track is something that was found again and again.
type track struct {
	id     int
	at     vision.Object
	vx, vy float64 // pixels a second
	seen   float64 // seconds
	hits   int
	misses int
}

const (
	confirmAt = 3   // found so often, it is a track
	dropAt    = 5   // missed so often, it is none any more
	gate      = 0.1 // of the width: how far from where it is expected it may be
	gainAt    = 0.6 // of what was measured, against what was expected (an alpha-beta filter)
	gainSpeed = 0.3
)

// tracker follows the objects of one camera.
type tracker struct {
	tracks []*track
	next   int
	owners [vision.Lanes]int // the track that followed each object last
	// Pictures, Objects, Found and Switches count what is known because the world is ours: pictures, objects in them, those with a track on them,
	// and how often another track followed an object than before.
	Pictures, Objects, Found, Switches int
}

func (t *tracker) add(p *picture) {
	now := float64(p.Frame) / vision.ClockRate
	free := append([]vision.Object(nil), p.Found...)
	for _, k := range t.tracks {
		dt := now - k.seen
		want := vision.Object{X: k.at.X + k.vx*dt, Y: k.at.Y + k.vy*dt}
		best, distance := -1, gate*float64(p.Width)
		for i, o := range free {
			if d := math.Hypot(o.X-want.X, o.Y-want.Y); d < distance {
				best, distance = i, d
			}
		}
		if best < 0 || dt <= 0 {
			k.misses++
			continue
		}
		o := free[best]
		free = append(free[:best], free[best+1:]...)
		dx, dy := o.X-want.X, o.Y-want.Y
		k.at, k.seen = vision.Object{X: want.X + gainAt*dx, Y: want.Y + gainAt*dy, Radius: o.Radius}, now
		k.vx, k.vy = k.vx+gainSpeed*dx/dt, k.vy+gainSpeed*dy/dt
		k.hits, k.misses = k.hits+1, 0
	}
	kept := t.tracks[:0]
	for _, k := range t.tracks {
		if k.misses < dropAt {
			kept = append(kept, k)
		}
	}
	t.tracks = kept
	for _, o := range free {
		t.next++
		t.tracks = append(t.tracks, &track{id: t.next, at: o, seen: now, hits: 1})
	}
	t.compare(p)
}

// compare counts how many objects have a track on them.
func (t *tracker) compare(p *picture) {
	if t.Pictures++; t.Pictures < 2*confirmAt {
		return // it has only begun
	}
	for i, o := range vision.World(p.Camera, p.Frame, p.Width, p.Height) {
		t.Objects++
		for _, k := range t.tracks {
			if k.hits >= confirmAt && k.misses == 0 && math.Hypot(k.at.X-o.X, k.at.Y-o.Y) <= 2*o.Radius {
				t.Found++
				if was := t.owners[i]; was != 0 && was != k.id {
					t.Switches++
				}
				t.owners[i] = k.id
				break
			}
		}
	}
}
