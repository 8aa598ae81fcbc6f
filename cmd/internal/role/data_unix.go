//go:build !windows

package role

// DefaultData is where roles keep what they know.
func DefaultData() string { return "/var/lib/skerry" }
