package role

import (
	"os"
	"path/filepath"
)

// DefaultData is where roles keep what they know.
func DefaultData() string {
	if d := os.Getenv("ProgramData"); d != "" {
		return filepath.Join(d, "Skerry")
	}
	return `C:\ProgramData\Skerry`
}
