package report

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// ReplaceFile replaces a file as a whole with what write writes: a reader has the old one or the new one. Its mode becomes 0644.
func ReplaceFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
