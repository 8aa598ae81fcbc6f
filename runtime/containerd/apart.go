//go:build linux

package containerd

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/spec"
)

// What a shim is called proves nothing, and neither does what its operator declares. So the self-test of a class that is to keep
// containers apart more than the host's kernel does starts a program of ours in it, which says which kernel it sees, and looks for that
// program on the host. A machine is only believed where a process of the container's holds one of KVM. That does not tell who else is in
// that process: gVisor on its platform kvm looks the same.

// bootFile identifies a kernel that runs.
const bootFile = "/proc/sys/kernel/random/boot_id"

// evidence is what was seen of a container.
type evidence struct {
	host, inside string // kernels; inside is empty where it has no such file, as on gVisor's
	process      bool   // its program is a process of the host
	machine      string // the process of the host that holds its machine; empty: none does
}

// apart checks what a class promises, and tells in words for its report what was seen.
func (d *Driver) apart(ctx context.Context, layer, binary string) (string, error) {
	if d.opts.Class == "" {
		return "", nil
	}
	if d.opts.Isolation == spec.IsolationShared {
		return "; class " + d.opts.Class, nil
	}
	e, err := d.look(ctx, layer, binary)
	if err == nil {
		err = e.refute(d.opts.Isolation)
	}
	if err != nil {
		return "", &runtime.StartError{Hint: "install the shim that the class is meant for, or declare it with isolation=shared",
			Err: fmt.Errorf("class %s is declared with isolation %s: %w", d.opts.Class, d.opts.Isolation, err)}
	}
	words := "; class " + d.opts.Class + " was seen on a kernel that is not the host's"
	if e.machine != "" {
		words += ", in a machine of KVM that " + e.machine + " holds"
	}
	return words, nil
}

// refuse names what a class whose containers have a kernel of their own does not hand in of the host.
func (d *Driver) refuse(s *runtime.Spec) error {
	if d.Options.Sandbox == (monitor.Sandbox{}) {
		return nil
	}
	return s.Refuse(d.Name(), map[runtime.Ability]string{
		runtime.AbilityDevices:     "its kernel is not the one that drives them; use runtime oci",
		runtime.AbilityPrivileged:  "its kernel is not the host's; use runtime oci",
		runtime.AbilityHostNetwork: "it has a network stack of its own; use runtime oci",
		runtime.AbilityPIDNS:       "each container has a kernel of its own; processes of another are not seen",
		runtime.AbilitySysctls:     "nobody has seen its kernel take them; use runtime oci",
	})
}

// refute tells what contradicts an isolation, or gives nil.
func (e evidence) refute(want spec.Isolation) error {
	switch {
	case e.host == "":
		return fmt.Errorf("the host does not say which kernel it runs")
	case e.process || e.inside == e.host:
		return fmt.Errorf("its containers run on the host's kernel")
	case want == spec.IsolationHardware && e.machine == "":
		return fmt.Errorf("no process of its containers holds a virtual machine of KVM, and no other is known here")
	}
	return nil
}

// look starts a container and gathers what tells how it is kept apart.
func (d *Driver) look(ctx context.Context, layer, binary string) (e evidence, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // a machine is to boot
	defer cancel()
	token := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	const program = "/keeper"
	s := runtime.Spec{ID: d.CheckID("apart", 0), RootFS: []runtime.Mount{runtime.Overlay(layer)},
		Args:      append(append([]string{program}, d.opts.Keeper[1:]...), kernelFlag, token),
		Mounts:    []runtime.Mount{{Type: "bind", Source: d.opts.Keeper[0], Target: program, Options: []string{"bind", "ro"}}},
		Resources: runtime.Resources{Memory: 256 << 20}}
	handle, err := d.start(ctx, s, binary)
	if err != nil {
		return e, err
	}
	defer d.Remove(context.WithoutCancel(ctx), handle)
	log, err := d.OpenLog(ctx, handle, runtime.LogOptions{Follow: true})
	if err != nil {
		return e, err
	}
	defer log.Close()
	line, err := log.Next()
	if err != nil {
		return e, fmt.Errorf("the test program ended without a word: %w", err)
	}
	var told bool
	if e.inside, told = strings.CutPrefix(line.Line, kernelWord); !told {
		return e, fmt.Errorf("the test program printed %q", line.Line)
	}
	e.host = kernel()
	e.process, e.machine = findProcesses(token, containerID(d.Options.Dir, s.ID))
	return e, nil
}

// findProcesses looks on the host for a program that was started with a token as its last argument, and for the process with a container's
// ID among its arguments that holds a machine.
func findProcesses(token, id string) (process bool, machine string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		process = process || bytes.HasSuffix(line, []byte("\x00"+token+"\x00"))
		if machine == "" && bytes.Contains(line, []byte(id)) && holdsMachine(filepath.Dir(f)) {
			name, _, _ := bytes.Cut(line, []byte{0})
			machine = filepath.Base(string(name))
		}
	}
	return process, machine
}

// holdsMachine reports whether a process, by its directory in /proc, has a virtual machine of KVM.
func holdsMachine(proc string) bool {
	fds, _ := filepath.Glob(filepath.Join(proc, "fd", "*"))
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == "anon_inode:kvm-vm" {
			return true
		}
	}
	return false
}

// kernel identifies the one that runs; empty where it does not tell.
func kernel() string {
	data, _ := os.ReadFile(bootFile)
	return strings.TrimSpace(string(data))
}

// How the program in the container is called, and what it prints before the kernel.
const (
	kernelFlag = "-k"
	kernelWord = "kernel "
)

// tellKernel prints which kernel it is on, and waits to be ended.
func tellKernel() int {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGTERM)
	fmt.Println(kernelWord + kernel())
	<-ended
	return 0
}
