//go:build !linux

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
)

func runTests(m *testing.M) int { return m.Run() }

// plain gives the directory of testscript's own skerry.
func plain(t *testing.T) string {
	self, err := exec.LookPath("skerry")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(self)
}
