//go:build linux

package vm

import (
	"fmt"
	"os"

	"skerry.dev/skerry/runtime"
	imagelayers "skerry.dev/skerry/runtime/internal/layers"
	"skerry.dev/skerry/spec"
)

// refuseKernel says what a unikernel cannot have.
func refuseKernel(task *runtime.Spec) error {
	if len(task.Mounts) > 0 {
		return &runtime.Unsupported{Ability: runtime.AbilityMounts, Driver: spec.RuntimeUnikernel,
			Reason: "a unikernel has no files of the host; put what it is told into args"}
	}
	return nil
}

// findKernel takes the first word of the command for a file of the image, which is the kernel, and the others for its command line.
func findKernel(dirs []string, spec *runtime.Spec, s *setup) error {
	in, err := imagelayers.Open(dirs)
	if err != nil {
		return err
	}
	defer in.Close()
	f := in.File(spec.Args[0])
	if f == nil {
		return &runtime.StartError{Field: "args[0]", Hint: "check the path of the kernel within the image",
			Err: fmt.Errorf("%s: no such file in the image", spec.Args[0])}
	}
	defer f.Close()
	s.Appliance.Args = spec.Args[1:]
	s.Kernel, err = place(f)
	return err
}

// place gives the path of an open file, in which no link is left.
func place(f *os.File) (string, error) {
	return os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}
