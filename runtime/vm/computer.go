//go:build linux

package vm

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	imagelayers "skerry.dev/skerry/runtime/internal/layers"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/runtime/internal/probe"
	"skerry.dev/skerry/spec"
)

// NewComputers opens the state directory of a driver of machines that boot a disk by their firmware.
func NewComputers(o Options) (*Appliances, error) {
	return newAppliances(o, kind{
		name: spec.RuntimeVM, memory: skerry.GiB, parts: computer, probe: probe.Disk, place: "disk/probe.img", command: "/disk",
		refuse: refuseDisk, find: findDisk, bring: bringDisk,
	})
}

// overlayFile is in the bundle.
const overlayFile = "disk.qcow2"

// refuseDisk says what a system on a disk cannot have. Files that it can be told of it can: they are copied.
func refuseDisk(task *runtime.Spec) error {
	if len(task.Args) > 1 {
		return &runtime.InvalidSpec{Field: "args[1]", Reason: "what runs is up to the system on the disk; tell it by machine.userData"}
	}
	if task.ReadOnlyRoot {
		return &runtime.Unsupported{Ability: runtime.AbilityReadOnlyRoot, Driver: spec.RuntimeVM,
			Reason: "a system writes to the disk that it is on; what it wrote is gone with the instance"}
	}
	for i, m := range task.Mounts {
		st, err := os.Stat(m.Source)
		switch {
		case m.Type != "bind" || err == nil && st.IsDir():
			return &runtime.Unsupported{Ability: runtime.AbilityMounts, Driver: spec.RuntimeVM,
				Reason: "a machine has its own disk; only single files that are read are handed in"}
		case err != nil:
			return &runtime.InvalidSpec{Field: fmt.Sprintf("mounts[%d].source", i),
				Reason: m.Source + " does not exist on the host; create it first"}
		case strings.ContainsAny(m.Target, "\n"):
			return &runtime.InvalidSpec{Field: fmt.Sprintf("mounts[%d].target", i), Reason: "has a line break"}
		}
	}
	return nil
}

// findDisk takes the only file in the directory that the command names, or that file itself, for a disk.
func findDisk(dirs []string, spec *runtime.Spec, s *setup) error {
	in, err := imagelayers.Open(dirs)
	if err != nil {
		return err
	}
	defer in.Close()
	name := spec.Args[0]
	if files := in.Dir(name); len(files) == 1 {
		name = files[0]
	} else if len(files) > 1 {
		return &runtime.StartError{Field: "rootfs", Hint: "put one disk into the image",
			Err: fmt.Errorf("there are %d files in %s of the image", len(files), name)}
	}
	file := in.File(name)
	if file == nil {
		return &runtime.StartError{Field: "rootfs", Hint: "build the image from a disk by skerry image build",
			Err: fmt.Errorf("%s: there is no disk in the image", name)}
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	a := s.Appliance
	if a.Format, a.Size, err = openDisk(file, st.Size()); err != nil {
		return &runtime.StartError{Field: "rootfs", Hint: "give the image a disk that stands alone", Err: fmt.Errorf("%s: %w", name, err)}
	}
	if a.Disk, err = place(file); err != nil {
		return err
	}
	a.Seed = &seed{InstanceID: string(spec.ID), Hostname: spec.Hostname, Env: spec.Env}
	if n := spec.Network; n != nil {
		a.Seed.Search = n.Search
	}
	if m := spec.Machine; m != nil {
		a.Seed.UserData, a.Seed.SSHKeys, a.Relaxed = m.UserData, m.SSHKeys, m.Relaxed
		if want := (int64(m.Disk) + sectorSize - 1) &^ (sectorSize - 1); want > 0 {
			if want < a.Size || want > diskMax {
				return &runtime.InvalidSpec{Field: "machine.disk",
					Reason: fmt.Sprintf("%s is less than the %s of the image's disk, or more than %s", m.Disk, skerry.Bytes(a.Size),
						skerry.Bytes(diskMax))}
			}
			a.Size = want
		}
	}
	for _, m := range spec.Mounts {
		a.Seed.Files = append(a.Seed.Files, seedFile{m.Source, path.Clean(m.Target)})
	}
	return nil
}

// bringDisk makes the disk that the machine writes to: what is not there is read from the image's.
func bringDisk(t *monitor.Task, s *setup) error {
	s.Appliance.Overlay = t.Path(overlayFile)
	if err := makeOverlay(s.Appliance.Overlay, s.Appliance.Size); err != nil {
		return &runtime.StartError{Hint: "free space on the worker", Err: fmt.Errorf("make a writable disk: %w", err)}
	}
	return nil
}

// disks opens the disks of a machine, and the disc that tells it what it is.
func (v *vm) disks(m *machine, files *opened) error {
	a := v.setup.Appliance
	base, err := files.open(a.Disk, os.O_RDONLY)
	if err != nil {
		return err
	}
	over, err := files.open(a.Overlay, os.O_RDWR)
	if err != nil {
		return err
	}
	told, err := a.Seed.file(m.NIC, a.DNS)
	if err != nil {
		return errors.Join(errors.New("machine: the seed could not be made"), err)
	}
	*files = append(*files, told)
	m.Disks = []disk{
		{Serial: "disk", Format: "qcow2", File: over, Relaxed: a.Relaxed, Base: &disk{Format: a.Format, File: base, ReadOnly: true}},
		{Serial: "seed", File: told, ReadOnly: true},
	}
	return nil
}
