package spec

import (
	"fmt"
	"strings"

	"skerry.dev/skerry"
)

// maxIDLength leaves room for what is added to an ID in the name of a file.
const maxIDLength = 200

// CheckInstanceID accepts what may be part of a path: letters, digits, and inner hyphens, dots and underscores.
func CheckInstanceID(id skerry.InstanceID) error {
	const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if n := len(id); n == 0 || n > maxIDLength {
		return fmt.Errorf("an instance ID has from 1 to %d characters, not %d", maxIDLength, n)
	}
	if !strings.ContainsRune(alphanumeric, rune(id[0])) || strings.Trim(string(id), alphanumeric+"-._") != "" {
		return fmt.Errorf("instance ID %q is not valid; use letters, digits and inner hyphens, dots and underscores", string(id))
	}
	return nil
}

// problem gives the first problem.
func (c *checker) problem() error {
	if len(c.problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", c.problems[0].Path, c.problems[0].Message)
}
