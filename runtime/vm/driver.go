//go:build linux

package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/internal/monitor"
	"skerry.dev/skerry/spec"
)

// Options configure a driver. Dir and Command are required.
type Options struct {
	// Dir is the state directory, an absolute path.
	Dir string
	// Name is the driver's; spec.RuntimeMicroVM when empty.
	Name string
	// Command is the command that ends up in Main, such as {"/usr/bin/skerry", "vm-run"}.
	Command []string
	// CgroupParent is the group below which each task gets its own; "skerry" when empty.
	CgroupParent string
	// Conmon is the supervisor, a name or path; "conmon" when empty.
	Conmon string
	// Kernel is what guests boot: a kernel's image, or a directory with boot/vmlinuz-* and lib/modules, as Debian's package of a
	// kernel holds them. KernelSHA256 is the digest that it must have; empty: any.
	Kernel, KernelSHA256 string
	// Enabled lets a driver of appliances run them.
	Enabled bool
	// Emulate lets machines run without KVM, many times slower.
	Emulate bool
	// Monitor says what runs the machines of containers; MonitorQEMU when empty.
	Monitor string
	// Firecracker and CloudHypervisor are programs, names or paths; "firecracker" and "cloud-hypervisor" when empty.
	Firecracker, CloudHypervisor string
	// QEMU and FileShare are programs, names or paths; those of this architecture, and virtiofsd, when empty.
	QEMU, FileShare string
	// BootTimeout is how long a guest may take to speak; a minute when 0, and five where it is emulated.
	BootTimeout time.Duration
	// Memory is the guest's for a task without a limit; 512 MiB when 0.
	Memory skerry.Bytes
	// Scratch is the most a task can write to its root; 8 GiB when 0. CacheMax bounds the disks kept of images; 8 GiB when 0.
	Scratch, CacheMax skerry.Bytes
	Log               *slog.Logger
}

// supervised is what the supervision of tasks offers as it is. Limits of memory cannot be changed while a machine runs, so a
// driver of machines is no Resizer.
type supervised interface {
	Name() string
	Stop(ctx context.Context, h runtime.Handle, grace time.Duration) error
	Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error)
	Status(ctx context.Context, h runtime.Handle) (runtime.Status, error)
	Remove(ctx context.Context, h runtime.Handle) error
	List(ctx context.Context) ([]runtime.Handle, error)
	ListOf(ctx context.Context, instance skerry.InstanceID) ([]runtime.Handle, error)
	Close() error
	CleanUp(ctx context.Context) error
	OpenLog(ctx context.Context, h runtime.Handle, o runtime.LogOptions) (runtime.LogStream, error)
	Pause(ctx context.Context, h runtime.Handle) error
	Resume(ctx context.Context, h runtime.Handle) error
}

// Driver is a runtime.Driver, Execer, Statser, Logger and Pauser.
type Driver struct {
	supervised
	*selfTest
	base *monitor.Driver
	opts Options

	templates *templates

	disks sync.Mutex // held while a disk is made or the cache is cut
}

// What can run the machines of containers. With MonitorAuto, Firecracker runs those that it can, and QEMU the others.
const (
	MonitorQEMU            = "qemu"
	MonitorFirecracker     = "firecracker"
	MonitorCloudHypervisor = "cloud-hypervisor"
	MonitorAuto            = "auto"
)

// Monitors are the values of Options.Monitor.
func Monitors() []string {
	return []string{MonitorQEMU, MonitorFirecracker, MonitorCloudHypervisor, MonitorAuto}
}

// choice is what the self-test found to work.
type choice struct {
	accel     string
	qemu      string // empty: it is not used
	qemuIs    string // its name and version
	fileShare string
	kernel    kernel
	// firecracker is nil where it is not used.
	firecracker *firecrackerProgram
	// vmlinux is the unpacked kernel, for Firecracker and for an emulated processor; empty: it is not used.
	vmlinux string
	// cloudHypervisor is nil where it is not used.
	cloudHypervisor *cloudHypervisorProgram
}

// monitor is what runs a machine, for people.
func (c *choice) monitor() string {
	switch {
	case c.firecracker != nil:
		return "Firecracker " + c.firecracker.Version
	case c.cloudHypervisor != nil:
		return "Cloud Hypervisor " + c.cloudHypervisor.Version
	}
	return strings.Replace(c.qemuIs, " emulator version", "", 1)
}

// New opens the state directory and adopts the tasks in it.
func New(opt Options) (*Driver, error) {
	if len(opt.Command) == 0 || !filepath.IsAbs(opt.Command[0]) {
		return nil, fmt.Errorf("runtime microvm: option Command %q must begin with an absolute path", opt.Command)
	}
	opt.Name = cmp.Or(opt.Name, spec.RuntimeMicroVM)
	if opt.Monitor == "" {
		opt.Monitor = MonitorQEMU
	}
	if !slices.Contains(Monitors(), opt.Monitor) {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--microvm-monitor: %q runs no machines", opt.Monitor).
			WithHint("use one of %s", strings.Join(Monitors(), ", "))
	}
	if opt.Memory == 0 {
		opt.Memory = 512 * skerry.MiB
	}
	if opt.Scratch == 0 {
		opt.Scratch = 8 * skerry.GiB
	}
	if opt.CacheMax == 0 {
		opt.CacheMax = 8 * skerry.GiB
	}
	base, err := monitor.NewDriver(monitor.DriverOptions{Name: opt.Name, Dir: opt.Dir, CgroupParent: opt.CgroupParent, Conmon: opt.Conmon,
		Log: opt.Log})
	if err != nil {
		return nil, err
	}
	d := &Driver{supervised: base, base: base, opts: opt, templates: newTemplates(filepath.Join(opt.Dir, "templates"), opt.Log)}
	d.selfTest = newSelfTest(base, opt.Dir, kvmWork, d.check)
	d.selfTest.patience = opt.BootTimeout
	if opt.Monitor != MonitorFirecracker && opt.Monitor != MonitorAuto {
		_ = os.RemoveAll(d.templates.dir) // nobody else has any
	}
	// What a crash left half-made.
	left, _ := filepath.Glob(filepath.Join(opt.Dir, "disks", making+"*"))
	for _, l := range left {
		_ = os.RemoveAll(l)
	}
	return d, nil
}

// Wait also ends what a vm-run that was killed has left of its machine: a Firecracker does not end with it.
func (d *Driver) Wait(ctx context.Context, h runtime.Handle) (runtime.Exit, error) {
	e, err := d.base.Wait(ctx, h)
	if err != nil {
		return e, err
	}
	if t, err := d.base.Tasks.Get(h); err == nil { // it is not removed meanwhile
		t.Kill(10 * time.Second)
	}
	return e, nil
}

// CleanUp is runtime.Driver's, and removes the templates.
func (d *Driver) CleanUp(ctx context.Context) error {
	return errors.Join(d.base.CleanUp(ctx), os.RemoveAll(d.templates.dir))
}
