package main

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry/lab"
)

// labCommands are those that need this system's namespaces.
func labCommands() []*cobra.Command { return []*cobra.Command{lab.Command()} }
