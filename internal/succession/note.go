package succession

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"skerry.dev/skerry/internal/files"
)

// local files of a candidate in the data directory.
const (
	candidateDir = "seat"      // identity
	copyFile     = "copy.json" // exists: the store is a copy of another machine's
)

// copyNote is what the file says.
type copyNote struct {
	Of    string    `json:"of"` // the candidate that was followed last
	Since time.Time `json:"since"`
	Aside []string  `json:"aside,omitempty"` // files with what was set aside
}

// Copied reports whether the store in a data directory is a copy of another machine's.
func Copied(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, copyFile))
	return err == nil
}

func readNote(dir string) (n copyNote) {
	if b, err := os.ReadFile(filepath.Join(dir, copyFile)); err == nil {
		_ = json.Unmarshal(b, &n) // that it exists is what counts
	}
	return n
}

func writeNote(dir string, n copyNote) error {
	b, err := json.MarshalIndent(n, "", "  ")
	if err != nil {
		return err
	}
	return files.Replace(filepath.Join(dir, copyFile), b, 0o600)
}
