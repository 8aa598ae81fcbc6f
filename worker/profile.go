//go:build linux

package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/wire"
)

// profileFile is what `skerry worker profile` measured, in a worker's data directory.
const profileFile = "profile.json"

// ReadProfile gives what was measured of runtimes on this machine, by name; nothing where nobody has measured.
func ReadProfile(dir string) (map[string]wire.RuntimeProfile, error) {
	if dir == "" {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(dir, profileFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseProfile(data)
}

func parseProfile(data []byte) (out map[string]wire.RuntimeProfile, err error) {
	if err := json.Unmarshal(data, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", profileFile, err)
	}
	for name, p := range out {
		if !p.Valid() || p.At.IsZero() {
			return nil, fmt.Errorf("%s: runtime %q has the figure %g, where 0.01 to 1000 is possible, or a rate %g, a share %g or a spread %g that cannot be, or no date", profileFile, name, p.CPU, p.Rate, p.Share, p.Spread)
		}
	}
	return out, nil
}

// WriteProfile keeps what was measured, in place of what was before.
func WriteProfile(dir string, profile map[string]wire.RuntimeProfile) error {
	data, err := json.MarshalIndent(profile, "", " ")
	if err != nil {
		return err
	}
	if _, err := parseProfile(data); err != nil {
		return err
	}
	return files.Replace(filepath.Join(dir, profileFile), append(data, '\n'), 0o644)
}
