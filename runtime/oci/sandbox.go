//go:build linux

package oci

import (
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/spec"
)

// GVisor gives the options of a driver whose containers run on gVisor's kernel. Its platform that needs no virtual machine is chosen: the
// other hangs where KVM is not real.
func GVisor(o Options) Options {
	o.Name, o.Runtimes, o.RuntimeArgs = spec.RuntimeGVisor, []string{"runsc"}, []string{"--platform=systrap"}
	o.Sandbox = monitor.Sandbox{Memory: spec.RuntimeNamed(spec.RuntimeGVisor).Memory, Pids: 256}
	return o
}

// refuse names what a sandbox cannot do.
func (d *Driver) refuse(s *runtime.Spec) error {
	if d.Options.Sandbox == (monitor.Sandbox{}) {
		return nil
	}
	return s.Refuse(d.Name(), map[runtime.Ability]string{
		runtime.AbilitySysctls:     "the sandbox's kernel has none; use runtime oci",
		runtime.AbilityDevices:     "the sandbox shows no devices of the host; use runtime oci",
		runtime.AbilityUserNS:      "the sandbox has users of its own, which are nobody outside",
		runtime.AbilityPIDNS:       "each sandbox has a kernel of its own; processes of another are not seen",
		runtime.AbilityHostNetwork: "the sandbox has a network stack of its own; use runtime oci",
		runtime.AbilitySeccomp:     "system calls are answered by the sandbox's kernel, which is filtered itself; leave it out",
		runtime.AbilityPrivileged:  "nothing in a sandbox is privileged on the host; use runtime oci",
	})
}

// begin starts the command that lets a created container run.
//
// GVisor of before 2025 refuses a network in what it takes for the host's own namespace, and takes every one for it
// that has rmem_default, as all have on newer kernels. So that directory is covered for the command alone, in a mount
// namespace of a thread that ends with it.
func (d *Driver) begin(cmd *exec.Cmd, t *monitor.Task) error {
	if d.Options.Sandbox == (monitor.Sandbox{}) {
		return cmd.Start()
	}
	var err error
	thread.Run(func() {
		if err = cover(fmt.Sprintf("/proc/%d/ns/net", t.Record().Init.PID)); err != nil {
			err = fmt.Errorf("hide %s from the sandbox: %w", coreSettings, err)
			return
		}
		err = cmd.Start()
	})
	return err
}

const coreSettings = "/proc/sys/net/core"

// cover puts an empty directory over the settings of a network namespace, as this thread sees them; it must be locked
// and is of no use to others then.
func cover(netns string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return err
	}
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	other, err := os.Open(netns)
	if err != nil {
		return err
	}
	defer other.Close()
	if err := unix.Setns(int(other.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	if err := upLoopback(); err != nil { // the sandbox copies what is up
		return err
	}
	// What is below depends on the namespace of who looks, and so does what is covered.
	if _, err := os.Stat(coreSettings + "/rmem_default"); err == nil {
		if err := unix.Mount("none", coreSettings, "tmpfs", 0, "mode=555"); err != nil {
			return err
		}
	}
	return unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)
}

// upLoopback sets the loopback interface of this thread's network namespace up.
func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return err
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}
