package succession

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// local files of a seat in the data directory.
const (
	seatDir  = "seat"      // identity
	copyFile = "copy.json" // exists: the store is a copy of another machine's
)

// copyNote is what the file says.
type copyNote struct {
	Of    string    `json:"of"` // the seat that was followed last
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
	return replaceFile(filepath.Join(dir, copyFile), b)
}

// replaceFile writes a file so that a power cut leaves the old one or the new one.
func replaceFile(path string, b []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return err
	}
	if d, err := os.Open(filepath.Dir(path)); err == nil {
		defer d.Close()
		_ = d.Sync() // not every file system can; the rename itself is done
	}
	return nil
}
