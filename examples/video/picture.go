package main

import (
	"time"

	"skerry.dev/skerry/examples/video/vision"
)

// picture is one of a camera, with when each stage was done with it.
type picture struct {
	Camera     uint32          `json:"camera"`
	Frame      uint32          `json:"frame"`
	Width      int             `json:"width"`
	Height     int             `json:"height"`
	Captured   time.Time       `json:"captured"`
	Aggregated time.Time       `json:"aggregated"` // complete
	Sent       time.Time       `json:"sent"`       // to the detection
	Began      time.Time       `json:"began"`      // the detection
	Detected   time.Time       `json:"detected"`
	Found      []vision.Object `json:"found,omitempty"`

	pixels []byte
}
