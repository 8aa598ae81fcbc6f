// Package vision is the seeing of example video: what cameras film, which is known exactly, and the detection that finds it again. It reads
// and sends nothing. The programs of examples/video and examples/services import it.
package vision

import "math"

// Object is a disc in a picture, in pixels.
type Object struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Radius float64 `json:"radius"`
}

// Lanes are how many objects there are in a picture, each in a lane of its own.
const Lanes = 5

// ClockRate is how many units of time a second has, as RTP counts them for video (RFC 3551, section 5).
const ClockRate = 90000

// World says where the objects of a camera are at a time, in units of ClockRate: each goes to and fro in a lane of its own. The tracking asks it for what is true.
func World(camera uint32, frame uint32, width, height int) []Object {
	out := make([]Object, Lanes)
	t := float64(frame) / ClockRate
	for i := range out {
		radius := float64(height) * (0.02 + 0.01*float64(i%3))
		way := float64(width) - 4*radius
		// 4 to 10 % of the width a second, to the other end and back.
		at := math.Mod(t*float64(width)*(0.04+0.015*float64((i+int(camera))%Lanes))+float64(i)*way/3, 2*way)
		if at > way {
			at = 2*way - at
		}
		out[i] = Object{X: 2*radius + at, Y: (float64(i) + 0.5) * float64(height) / Lanes, Radius: radius}
	}
	return out
}

// Draw makes the picture of a camera, a byte of brightness for each pixel: bright discs on a ground that is neither even nor free of noise.
func Draw(camera, frame uint32, width, height int) []byte {
	b := make([]byte, width*height)
	noise := camera*2654435761 + frame + 1
	for y := range height {
		for x := range width {
			noise = noise*1664525 + 1013904223
			b[y*width+x] = byte(40 + 30*x/width + 20*y/height + int(noise>>28))
		}
	}
	for _, o := range World(camera, frame, width, height) {
		for y := max(0, int(o.Y-o.Radius)); y <= min(height-1, int(o.Y+o.Radius)+1); y++ {
			for x := max(0, int(o.X-o.Radius)); x <= min(width-1, int(o.X+o.Radius)+1); x++ {
				if math.Hypot(float64(x)-o.X, float64(y)-o.Y) <= o.Radius {
					b[y*width+x] += 110
				}
			}
		}
	}
	return b
}
