package main

import (
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"

	"skerry.dev/skerry/examples/video/vision"
)

// The size of a picture of the video, in pixels.
const videoWidth, videoHeight = 320, 180

func frameName(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("frame-%d.grey", n)) }

// prepareVideo films: two cameras, a picture each third of a second.
func prepareVideo(dir string) error {
	for n := range inputs {
		if err := os.WriteFile(frameName(dir, n), vision.Draw(uint32(n%2), uint32(n)*vision.ClockRate/3, videoWidth, videoHeight), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// openVideo gives what finds the objects in a picture. The sum is of where they are, to the pixel.
func openVideo(dir string) (kernel, error) {
	return func(n int, _ string, loaded func()) (uint32, error) {
		pixels, err := os.ReadFile(frameName(dir, n))
		if err != nil {
			return 0, err
		}
		if len(pixels) != videoWidth*videoHeight {
			return 0, fmt.Errorf("a picture of %d bytes", len(pixels))
		}
		loaded()
		var text []byte
		for _, o := range vision.Detect(pixels, videoWidth, videoHeight) {
			text = fmt.Appendf(text, "%.0f %.0f %.0f\n", o.X, o.Y, math.Round(o.Radius))
		}
		return crc32.ChecksumIEEE(text), nil
	}, nil
}
