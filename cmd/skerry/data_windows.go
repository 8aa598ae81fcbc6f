package main

import (
	"os"
	"path/filepath"
)

// defaultData is where roles keep what they know.
func defaultData() string {
	if d := os.Getenv("ProgramData"); d != "" {
		return filepath.Join(d, "Skerry")
	}
	return `C:\ProgramData\Skerry`
}
