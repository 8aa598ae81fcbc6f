//go:build linux

package worker

import (
	"fmt"
	"slices"

	"skerry.dev/skerry/internal/blockdev"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// ioOf says what a container may read and write, and of which devices: the disk with the worker's data, and volumes that are
// devices of their own. The kernel charges what a loop device does to whoever asked for it.
func (s *Server) ioOf(assigned *spec.Assignment, res spec.Resources, driver string) (*runtime.IO, error) {
	l := res.IO
	if l == (spec.IOLimits{}) {
		return nil, nil
	}
	io := &runtime.IO{ReadBps: uint64(l.ReadBps), WriteBps: uint64(l.WriteBps), ReadIOPS: uint64(l.ReadIOPS), WriteIOPS: uint64(l.WriteIOPS),
		Weight: uint16(l.Weight)}
	dirs := []string{s.opt.Dir}
	for i := range assigned.Spec.Volumes {
		if v := &assigned.Spec.Volumes[i]; (v.Empty == nil || !v.Empty.Memory) && (v.Host == nil || v.Host.FileSystem == "") && v.NFS == nil {
			dirs = append(dirs, s.volumeSource(assigned, v))
		}
	}
	for _, dir := range dirs {
		device, err := blockdev.Of(dir)
		if err != nil {
			return nil, &runtime.Unsupported{Ability: runtime.AbilityIO, Driver: driver, Reason: fmt.Sprintf("resources.io cannot be held: %v", err)}
		}
		if !slices.Contains(io.Devices, device) {
			io.Devices = append(io.Devices, device)
		}
	}
	return io, nil
}
