package ctl

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"skerry.dev/skerry"
)

// newFile writes a file that has its name only when all is in it.
func newFile(name string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(name), ".skerry-export-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	if err = write(file); err == nil {
		err = errors.Join(file.Sync(), file.Close())
	}
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	return err
}

// What is there after writing has failed, for notWritten.
const (
	standardOutput = "standard output"
	noNewFile      = "there is no new file"
	unusable       = "what was written is incomplete and unusable"
)

// notWritten says why something could not be written where it was to go. It names that, and not the temporary file of newFile.
func notWritten(thing, where, left string, err error) error {
	var at *fs.PathError
	var link *os.LinkError
	if errors.As(err, &at) {
		err = at.Err
	} else if errors.As(err, &link) {
		err = link.Err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return skerry.Errorf(skerry.CodeFull, "%s has no room for %s: %w", where, thing, err).
			WithHint("make room there, or write elsewhere; %s", left)
	}
	return skerry.Errorf(skerry.CodeUnavailable, "%s cannot be written to %s: %w", thing, where, err).
		WithHint("write elsewhere; %s", left)
}

// sink remembers why nothing more can be written.
type sink struct {
	io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.Writer.Write(p)
	if err != nil {
		s.err = err
	}
	return n, err
}
