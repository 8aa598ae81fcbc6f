//go:build !linux

package main

import (
	"github.com/spf13/cobra"

	"skerry.dev/skerry/cmd/internal/agent"
)

func upCommand() *cobra.Command {
	return agent.Refusing("up", "Run root, cluster and worker in one process")
}
