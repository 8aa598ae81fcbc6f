//go:build !linux

package files

import "os"

func exchange(from, to string) error { return os.Rename(from, to) }
