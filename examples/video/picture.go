package main

import (
	"math"
	"time"
)

// picture is one of a camera, with when each stage was done with it.
type picture struct {
	Camera     uint32    `json:"camera"`
	Frame      uint32    `json:"frame"`
	Width      int       `json:"width"`
	Height     int       `json:"height"`
	Captured   time.Time `json:"captured"`
	Aggregated time.Time `json:"aggregated"` // complete
	Sent       time.Time `json:"sent"`       // to the detection
	Began      time.Time `json:"began"`      // the detection
	Detected   time.Time `json:"detected"`
	Found      []object  `json:"found,omitempty"`

	pixels []byte
}

// object is a disc in a picture, in pixels.
type object struct {
	X      float64 `json:"x"`
	Y      float64 `json:"y"`
	Radius float64 `json:"radius"`
}

const lanes = 5

// world says where the objects of a camera are at a time: each goes to and fro in a lane of its own. The tracking asks it for what is true.
func world(camera uint32, frame uint32, width, height int) []object {
	out := make([]object, lanes)
	t := float64(frame) / clockRate
	for i := range out {
		radius := float64(height) * (0.02 + 0.01*float64(i%3))
		way := float64(width) - 4*radius
		// 4 to 10 % of the width a second, to the other end and back.
		at := math.Mod(t*float64(width)*(0.04+0.015*float64((i+int(camera))%lanes))+float64(i)*way/3, 2*way)
		if at > way {
			at = 2*way - at
		}
		out[i] = object{X: 2*radius + at, Y: (float64(i) + 0.5) * float64(height) / lanes, Radius: radius}
	}
	return out
}

// draw makes the picture of a camera: bright discs on a ground that is neither even nor free of noise.
func draw(camera, frame uint32, width, height int) []byte {
	b := make([]byte, width*height)
	noise := camera*2654435761 + frame + 1
	for y := range height {
		for x := range width {
			noise = noise*1664525 + 1013904223
			b[y*width+x] = byte(40 + 30*x/width + 20*y/height + int(noise>>28))
		}
	}
	for _, o := range world(camera, frame, width, height) {
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
