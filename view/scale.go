package view

import (
	"time"
)

// ScaleView tells how many instances the load asks for.
type ScaleView struct {
	Min  int       `json:"min"`
	Max  int       `json:"max"`
	Want int       `json:"want"`
	Why  string    `json:"why"`
	At   time.Time `json:"at,omitzero"`
}
