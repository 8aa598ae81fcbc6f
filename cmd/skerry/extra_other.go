//go:build !linux

package main

import (
	"github.com/spf13/cobra"
)

// extraCommands are those that only this system has.
func extraCommands() []*cobra.Command { return nil }
