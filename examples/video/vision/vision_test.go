package vision

import (
	"math"
	"testing"
)

// Everything that is in pictures is found, where it is, and nothing else.
func TestDetect(t *testing.T) {
	for camera := range uint32(3) {
		frame := camera * 7 * ClockRate
		truth, found := World(camera, frame, 320, 180), Detect(Draw(camera, frame, 320, 180), 320, 180)
		if len(found) != len(truth) {
			t.Errorf("camera %d: %d found of %d", camera, len(found), len(truth))
		}
		for _, o := range truth {
			near := math.Inf(1)
			for _, f := range found {
				near = min(near, math.Hypot(f.X-o.X, f.Y-o.Y))
			}
			if near > 2 {
				t.Errorf("camera %d: %+v was found %.1f pixels away", camera, o, near)
			}
		}
	}
}
