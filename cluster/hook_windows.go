package cluster

import "os/exec"

// endTogether leaves a program's own children to it.
func endTogether(*exec.Cmd) {}

func endGroup(*exec.Cmd) error { return nil }
