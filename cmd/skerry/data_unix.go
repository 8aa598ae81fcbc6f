//go:build !windows

package main

// defaultData is where roles keep what they know.
func defaultData() string { return "/var/lib/skerry" }
