package runtime

import (
	"fmt"
	"path"
	"strings"
	"syscall"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Spec is a task to start. The zero values are the safe ones: private namespaces, dropped capabilities, seccomp, no new
// privileges, no network.
type Spec struct {
	ID        TaskID
	Instance  skerry.InstanceID
	Container string

	// RootFS makes the root file system: mounted one after the other onto the same place, as containerd does. For the
	// oci driver it is one overlay (options lowerdir=a:b, the upper directory is the driver's unless given) or one bind
	// mount. For the native driver it is one "bind" whose source is a directory or a program.
	RootFS []Mount
	// Args[0] is the program, looked up in the PATH of Env when it has no slash. Env is complete: nothing is added but
	// a PATH when there is none. Dir is the working directory, "/" when empty.
	Args []string
	Env  []string
	Dir  string
	// User is "uid", "uid:gid", or names to look up in the root file system's /etc/passwd and /etc/group. Empty: root
	// for oci, the agent's user for native.
	User     string
	Hostname string
	// ExtraHosts are further lines of the hosts file. A driver that makes none refuses them.
	ExtraHosts []spec.HostEntry
	Mounts     []Mount

	Resources Resources
	Ulimits   []Ulimit
	Sysctls   map[string]string

	ReadOnlyRoot bool
	// Privileged lifts every isolation but the namespaces.
	Privileged bool
	// CapAdd and CapDrop change the driver's default set; names with or without CAP_, or ALL.
	CapAdd  []string
	CapDrop []string
	// AllowNewPrivileges lets set-user-ID programs work. Off unless asked for.
	AllowNewPrivileges bool
	Seccomp            Seccomp
	Devices            []Device
	// Groups are further groups of the user, and Hooks programs that the runtime runs: both come with devices.
	Groups []uint32
	Hooks  []Hook

	// Network is what the network made for the instance. Nil: a namespace with nothing but loopback for oci, the host's
	// for native. HostNetwork: the host's.
	Network     *wire.Attachment
	HostNetwork bool
	// UserNS gives the task users of its own, so that its root is nobody outside. Nil: it has the host's users. A driver whose
	// self-test does not list AbilityUserNS refuses it, and one that lists AbilityUserNSCopies a root that is not Shifted.
	UserNS *UserNamespace
	// SharePID puts the task into the process namespace of another one of the same driver.
	SharePID *Handle

	// StopSignal is what Stop sends first; 0 means SIGTERM.
	StopSignal syscall.Signal
	// LogMaxBytes bounds what is kept of the output on disk, in two files of half the size; 0 means 10 MiB, less than
	// 64 KiB counts as 64 KiB.
	LogMaxBytes skerry.Bytes
	// Previous is the attempt that this one follows, not yet removed. Its log stays readable, see LogOptions.
	Previous TaskID

	TTY    bool
	Labels map[string]string

	// Listen are the TCP ports of the service, for a driver whose programs cannot open sockets and are given them. Handler has
	// such a driver run the program once for each request at the first of them; only the wasm driver does.
	Listen  []uint16
	Handler *Handler

	// Machine is for a driver of machines that boot a disk of the image's; others do not look at it.
	Machine *Machine

	// Checkpoint has the task started in a way in which it can be checkpointed (see Checkpointer).
	Checkpoint bool
}

// Mount is what mount(8) takes. In Spec.Mounts, Target is the absolute path inside; in Spec.RootFS it is empty. Type is
// "bind" (Source is a path on the host), "tmpfs" (Options may carry size=64m), or for RootFS also "overlay".
type Mount struct {
	Type     string   `json:"type"`
	Source   string   `json:"source,omitempty"`
	Target   string   `json:"target,omitempty"`
	Options  []string `json:"options,omitempty"`
	ReadOnly bool     `json:"readOnly,omitempty"`
	// Shifted says, of a bind mount or the root of a task with a user namespace, that files belong to the numbers that its users have on
	// the host. Else files belong to the numbers that its users have inside, and the driver maps them where the file system can do
	// that; where it cannot, files of numbers below UserNS.First are nobody's inside.
	Shifted bool `json:"shifted,omitempty"`
}

// UserNamespace maps the users and groups 0 to Size-1 of a task to First, First+1 and so on of the host.
type UserNamespace struct {
	First uint32 `json:"first"`
	Size  uint32 `json:"size"`
}

// ProbeUsers are those of the self-tests' tasks; no other is given them.
func ProbeUsers() UserNamespace { return UserNamespace{First: 0x7ffd_0000, Size: 1 << 16} }

// Host gives the number that a user or group of a task has on the host, and false for one that the namespace does not have.
func (u UserNamespace) Host(id uint32) (uint32, bool) { return u.First + id, id < u.Size }

// Handler says how a program is run for requests by HTTP. Zeros are the defaults.
type Handler struct {
	// Timeout ends a run; Concurrency is how many there are at once; MaxBody bounds what a request and an answer carry.
	Timeout     time.Duration `json:"timeout,omitempty"`
	Concurrency int           `json:"concurrency,omitempty"`
	MaxBody     skerry.Bytes  `json:"maxBody,omitempty"`
}

// Machine says what a machine is given that boots a disk.
type Machine struct {
	// Disk is the size that its disk is to have; 0: that of the image's.
	Disk skerry.Bytes
	// UserData and SSHKeys are for cloud-init, or whatever reads its words in the machine.
	UserData string
	SSHKeys  []string
	// Relaxed lets a completed flush of the machine's be lost when the host loses its power.
	Relaxed bool
}

// EnvListen tells a program which of its descriptors listen at which ports, as "8080=4,8443=5".
const EnvListen = "SKERRY_LISTEN"

// Resources are limits; a zero is no limit.
type Resources struct {
	// CPU is the most a task may use; CPURequest its share when others want the processor too.
	CPU        skerry.MilliCPU
	CPURequest skerry.MilliCPU
	// Memory counts page cache too, and is not extended by swap. Beyond it the kernel kills.
	Memory skerry.Bytes
	// MemoryLow is not taken from the task for the sake of others while that can be helped, where the kernel can do that.
	MemoryLow skerry.Bytes
	// IO bounds what is read from block devices and written to them; nil: nothing does.
	IO *IO
	// BandwidthIn and BandwidthOut are bytes per second towards the task and from it. The network holds every task to them; a driver whose
	// machines have limiters of their own sets these, too, so that a guest waits and loses nothing.
	BandwidthIn, BandwidthOut skerry.Bytes
	// HugePages is what the task may use of them, where the kernel counts; others have none.
	HugePages spec.HugePages
	// Pids limits processes and threads.
	Pids int64
	// CPUSet names the processors that may be used, as in "0-2,5".
	CPUSet string
}

// IO are limits of a task for each of some block devices; a zero is none.
type IO struct {
	Devices             []string // whole disks and loop devices, as "254:0"
	ReadBps, WriteBps   uint64
	ReadIOPS, WriteIOPS uint64
	Weight              uint16 // 1 to 10000; 100 is the usual one
}

// Ulimit is a resource limit; Name as in "nofile", without RLIMIT_.
type Ulimit struct {
	Name       string
	Soft, Hard uint64
}

// Seccomp chooses the filter of system calls.
type Seccomp string

// The filters. SeccompAuto is the driver's own choice: the default filter for containers, none for native processes.
const (
	SeccompAuto       Seccomp = ""
	SeccompDefault    Seccomp = "default"
	SeccompUnconfined Seccomp = "unconfined"
)

// Hook is a program of the host that is run as root at a stage of a container's life, named as in the OCI's runtime specification.
type Hook struct {
	Stage   string
	Path    string
	Args    []string // the first is the program's name for itself
	Env     []string
	Timeout time.Duration // 0: none
}

// Device is a device node of the host to show inside. Empty Target means the same path; Access is of "rwm", empty "rw".
type Device struct {
	Path   string
	Target string
	Access string
}

// DefaultLogMax is the size of a task's log when nothing is said.
const DefaultLogMax = 10 * skerry.MiB

// LogMax is LogMaxBytes with the default and the least applied.
func (s *Spec) LogMax() skerry.Bytes {
	if s.LogMaxBytes <= 0 {
		return DefaultLogMax
	}
	return max(s.LogMaxBytes, 64*skerry.KiB)
}

// Signal is StopSignal with the default applied.
func (s *Spec) Signal() syscall.Signal {
	if s.StopSignal == 0 {
		return syscall.SIGTERM
	}
	return s.StopSignal
}

// Check says what is wrong with a task ID.
func (id TaskID) Check() error {
	if id == "" || len(id) > 200 {
		return &InvalidSpec{"id", fmt.Sprintf("has %d bytes; give it 1 to 200", len(id))}
	}
	for i, c := range []byte(id) {
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._-", rune(c))) {
			return &InvalidSpec{"id", fmt.Sprintf("%q is not valid; use letters, digits, and inner '.', '_', '-'", string(id))}
		}
	}
	return nil
}

// Check finds what is wrong with a Spec whatever the driver is. Its errors are *InvalidSpec.
func (s *Spec) Check() error {
	if err := s.ID.Check(); err != nil {
		return err
	}
	bad := func(field, format string, args ...any) error {
		return &InvalidSpec{field, fmt.Sprintf(format, args...)}
	}
	if s.Previous != "" {
		if err := s.Previous.Check(); err != nil {
			return bad("previous", "%q is not a task ID", s.Previous)
		}
	}
	if len(s.Args) == 0 || s.Args[0] == "" {
		return bad("args", "is empty; name the program to run")
	}
	for name, list := range map[string][]string{"args": s.Args, "env": s.Env, "dir": {s.Dir}, "hostname": {s.Hostname}, "user": {s.User}} {
		for i, v := range list {
			if strings.IndexByte(v, 0) >= 0 {
				return bad(fmt.Sprintf("%s[%d]", name, i), "contains a NUL byte; remove it")
			}
		}
	}
	for i, e := range s.Env {
		if strings.IndexByte(e, '=') <= 0 {
			return bad(fmt.Sprintf("env[%d]", i), "%q is not NAME=value", e)
		}
	}
	if s.Dir != "" && !path.IsAbs(s.Dir) {
		return bad("dir", "%q is not absolute; begin it with /", s.Dir)
	}
	for i, m := range s.Mounts {
		field := fmt.Sprintf("mounts[%d]", i)
		if !path.IsAbs(m.Target) || path.Clean(m.Target) == "/" {
			return bad(field+".target", "%q must be an absolute path below /", m.Target)
		}
		switch m.Type {
		case "bind":
			if !path.IsAbs(m.Source) {
				return bad(field+".source", "%q must be an absolute path of the host", m.Source)
			}
		case "tmpfs":
		default:
			return bad(field+".type", "%q is unknown; use bind or tmpfs", m.Type)
		}
	}
	r := s.Resources
	if r.CPU < 0 || r.CPURequest < 0 || r.Memory < 0 || r.Pids < 0 {
		return bad("resources", "a limit is negative; use 0 for none")
	}
	if r.CPU > 0 && r.CPU < 10 {
		return bad("resources.cpu", "%s is less than the kernel can enforce; use 0.01 or more", r.CPU)
	}
	if r.Memory > 0 && r.Memory < skerry.MiB {
		return bad("resources.memory", "%s is less than any process needs; use 1Mi or more", r.Memory)
	}
	switch s.Seccomp {
	case SeccompAuto, SeccompDefault, SeccompUnconfined:
	default:
		return bad("seccomp", "%q is unknown; use default or unconfined", s.Seccomp)
	}
	if u := s.UserNS; u != nil {
		if u.First == 0 || u.Size == 0 || uint64(u.First)+uint64(u.Size) > 1<<32-1 {
			return bad("userNS", "%d users from %d on are no range; it begins above 0 and ends below %d", u.Size, u.First, uint32(1<<32-1))
		}
		if s.Privileged {
			return bad("userNS", "a privileged task has the host's users")
		}
	}
	if s.Network != nil && s.HostNetwork {
		return bad("hostNetwork", "cannot be combined with an own network")
	}
	return nil
}
