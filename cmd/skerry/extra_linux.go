package main

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry/lab"
)

// extraCommands are those that only this system has.
func extraCommands() []*cobra.Command { return []*cobra.Command{lab.Command()} }
