//go:build linux

package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry/overlay/internal/kernel"
)

// Options configure the data plane of one worker. Worker is required.
type Options struct {
	// Worker is the worker's name; devices and the directory of pins are named after it.
	Worker string
	// NetNS is the path of the namespace that counts as the host; empty means the one that New is called in.
	NetNS string
	// BPFFS is where the bpf file system is, or is mounted if it is not; /sys/fs/bpf when empty.
	BPFFS string
	// Flows is how many TCP flows through service addresses there may be at once, and OtherFlows how many others. They
	// take kernel memory as they come, some 400 bytes each, and keep it; those of OtherFlows take it at once. The zero values take what suits
	// the machine, at most 65536 and a quarter of that. Tables that exist keep their size.
	Flows, OtherFlows int
	Timeouts          Timeouts
	// KeepOlder leaves programs and tables of another layout in place, and hangs no other programs beside them: traffic goes on
	// with what they hold, and an agent of that layout finds them as it left them. It is for an agent on trial.
	KeepOlder bool
	// Log tells of what is wrong with the machine; nil discards it.
	Log *slog.Logger

	noTCX     bool   // for tests
	noFilters bool   // for tests: links at cables as well, as agents before attached them
	layout    int    // for tests; 0: layout
	space     uint64 // of the namespace that counts as the host: its cookie
}

// Timeouts say how long a flow without packets is kept. The zero values are 24 h, 60 s, 120 s and 30 s.
type Timeouts struct {
	Established, Closing, UDP, ICMP time.Duration
	// Sweep is how often they are looked at; 10 s when zero. With hundreds of thousands of flows it is less often.
	Sweep time.Duration
}

// Unsupported says that this machine, or the agent's privileges, do not allow the fast path.
type Unsupported struct {
	Reason, Cure string
}

func (u *Unsupported) Error() string { return u.Reason + "; " + u.Cure }

func (o *Options) check() error {
	if o.Worker == "" {
		return fmt.Errorf("bpf: option Worker is missing; give the worker's name")
	}
	if o.BPFFS == "" {
		o.BPFFS = "/sys/fs/bpf"
	}
	if !filepath.IsAbs(o.BPFFS) {
		return fmt.Errorf("bpf: option BPFFS %q must be an absolute path", o.BPFFS)
	}
	if o.Flows < 0 || o.OtherFlows < 0 || o.Flows > 1<<24 || o.OtherFlows > 1<<24 {
		return fmt.Errorf("bpf: options Flows %d and OtherFlows %d must be 0 to %d", o.Flows, o.OtherFlows, 1<<24)
	}
	if o.Flows == 0 {
		o.Flows = 65536
		var info unix.Sysinfo_t
		if unix.Sysinfo(&info) == nil {
			// A full table takes a fiftieth of the memory at most.
			o.Flows = int(min(65536, max(4096, uint64(info.Totalram)*uint64(info.Unit)>>14)))
		}
	}
	if o.OtherFlows == 0 {
		o.OtherFlows = max(o.Flows/4, 1024)
	}
	for _, t := range []struct {
		to   *time.Duration
		zero time.Duration
	}{{&o.Timeouts.Established, 24 * time.Hour}, {&o.Timeouts.Closing, time.Minute}, {&o.Timeouts.UDP, 2 * time.Minute},
		{&o.Timeouts.ICMP, 30 * time.Second}, {&o.Timeouts.Sweep, 10 * time.Second}} {
		if *t.to == 0 {
			*t.to = t.zero
		}
		if *t.to < time.Millisecond || *t.to > 20*24*time.Hour {
			return fmt.Errorf("bpf: option Timeouts: %s must be 1 ms to 20 days", *t.to)
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (o *Options) prefix() string { return kernel.DevicePrefix(o.Worker) }

func (o *Options) tunnelTap() string { return o.prefix() + ".t" }

// TunnelTap is the device by which packets for sealed paths go to the tunnel, and come from there.
func (d *Device) TunnelTap() string { return d.opts.tunnelTap() }

func (o *Options) agentTap() string { return o.prefix() + ".m" }
func (o *Options) vxlan() string    { return o.prefix() + ".v" }

// dir is where everything of the worker is pinned: one file system is seen from all network namespaces, and in another one
// there may be another worker of this name.
func (o *Options) dir() string {
	name := o.pins()
	if o.space > hostSpace {
		name += fmt.Sprintf("-%x", o.space)
	}
	return filepath.Join(o.BPFFS, "skerry", name)
}

// hostSpace is the cookie of the namespace that the machine starts with.
const hostSpace = 1

// pins begins the names of the directories of all workers of this name. The file system allows no dots in names.
func (o *Options) pins() string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, o.Worker)
	return clean[:min(len(clean), 60)] + "-" + o.prefix()
}

// unsupported recognises a lack of privileges or of the kernel.
func unsupported(err error) error {
	var u *Unsupported
	var v *ebpf.VerifierError
	switch {
	case err == nil || errors.As(err, &u):
		return err
	case errors.As(err, &v):
		return &Unsupported{Reason: "the kernel does not take the overlay's programs: " + err.Error(),
			Cure: "they need Linux 6.1; use a newer kernel or the fallback"}
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		return &Unsupported{Reason: "the overlay's programs need privileges: " + err.Error(),
			Cure: "run the worker as root, with CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN and CAP_SYS_ADMIN, or without the fast path"}
	case errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOPROTOOPT):
		return &Unsupported{Reason: "the kernel lacks a part: " + err.Error(),
			Cure: "it needs Linux 6.1 with BPF, tap devices and VXLAN; without them use the fallback"}
	}
	return err
}
