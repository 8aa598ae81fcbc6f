//go:build !linux

package main

import "github.com/spf13/cobra"

// labCommands are none: a lab is made of Linux namespaces.
func labCommands() []*cobra.Command { return nil }
