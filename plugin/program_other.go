//go:build !linux

package plugin

import (
	"context"
	"os"
	"os/exec"

	"skerry.dev/skerry"
)

// group limits nothing here.
type group struct{}

func (*group) oom() bool { return false }
func (*group) remove()   {}

func removeGroups(string) {}

func (x *program) plan() []string {
	return []string{"missing: a program runs as the orchestrator's own user, with network and files, and without a limit of memory: there is nothing better on this system"}
}

func (x *program) caged(context.Context) (*process, error) { return x.bare() }

func alone(*exec.Cmd) {}

func endGroup(p *os.Process) { _ = p.Kill() }

func peak(int) skerry.Bytes { return 0 }

// ShimMain does nothing on this system.
func ShimMain([]string) int { return 1 }
