//go:build !linux

package artifact

import (
	"errors"
	"fmt"
	"io"
)

func unpackTar(io.Reader, string, Options) error {
	return fmt.Errorf("layers are unpacked on Linux only: %w", errors.ErrUnsupported)
}

func syncTree(string) error { return nil }
