package spec

import (
	"slices"

	"skerry.dev/skerry"
)

// AbilityResize is the ability of a runtime to change limits of what runs, by the name that workers report.
const AbilityResize = "resize"

// AbilityUserNS is the ability of a runtime to give containers users of their own.
const AbilityUserNS = "user-namespace"

// AbilityUserNSCopies says how a runtime does that where owners of files cannot be mapped: it is given copies of
// images, and all instances of an organisation have the same users.
const AbilityUserNSCopies = "user-namespace-copies"

// AbilityCheckpoint is the ability of a runtime to move what runs with its memory.
const AbilityCheckpoint = "checkpoint"

// Limits are the most that a container may use.
type Limits struct {
	CPU    skerry.MilliCPU `json:"cpu,omitempty" doc:"Most cores it may use; at least cpu." cbor:"1,keyasint,omitempty"`
	Memory skerry.Bytes    `json:"memory,omitempty" doc:"Memory above which it is killed; at least memory, which the kernel avoids reclaiming (memory.low)." cbor:"2,keyasint,omitempty"`
}

// HugePages are amounts of memory in pages of two sizes.
type HugePages struct {
	Size2Mi skerry.Bytes `json:"2Mi,omitempty" doc:"Memory in pages of 2Mi, such as 64Mi." cbor:"1,keyasint,omitempty"`
	Size1Gi skerry.Bytes `json:"1Gi,omitempty" doc:"Memory in pages of 1Gi." cbor:"2,keyasint,omitempty"`
}

// IOLimits bound what a container reads from and writes to the disk that the worker's data is on. Zero is no limit.
type IOLimits struct {
	ReadBps   skerry.Bytes `json:"readBps,omitempty" doc:"Read limit in bytes per second." cbor:"1,keyasint,omitempty"`
	WriteBps  skerry.Bytes `json:"writeBps,omitempty" doc:"Write limit in bytes per second. With cgroup v1, only direct writes (O_DIRECT, or to a device) count." cbor:"2,keyasint,omitempty"`
	ReadIOPS  int          `json:"readIops,omitempty" doc:"Reads per second." min:"0" max:"10000000" cbor:"3,keyasint,omitempty"`
	WriteIOPS int          `json:"writeIops,omitempty" doc:"Writes per second." min:"0" max:"10000000" cbor:"4,keyasint,omitempty"`
	Weight    int          `json:"weight,omitempty" doc:"Relative share of the disk under contention; 100 is the default share. Few kernels support it." min:"1" max:"10000" cbor:"5,keyasint,omitempty"`
}

// DefaultMemory is the most memory that a container may use which says nothing of memory, where its organisation has not the level
// privileged. Quotas of memory count it for every such container.
const DefaultMemory = 512 * skerry.MiB

// DefaultStorage is the most that a container may write to its layer, and to volumes without a size, which says nothing of storage, where
// its organisation has not the level privileged. Quotas of storage count it.
const DefaultStorage = 4 * skerry.GiB

// Enforced gives a container's resources as a worker enforces them for an organisation of this level. Machines and modules have memory
// without being asked; nothing is added for what was placed before there were levels.
func (l SecurityLevel) Enforced(r Resources, runtime string) Resources {
	if l == "" || l == LevelPrivileged {
		return r
	}
	orDefault(&r.Storage, DefaultStorage)
	switch runtime {
	case RuntimeWasm, RuntimeMicroVM, RuntimeUnikernel, RuntimeVM:
		return r
	}
	if r.MostMemory() == 0 {
		r.Limits.Memory = DefaultMemory
	}
	return r
}

// MachineDisk is the size of the disk that a service asks for as a machine, or 0.
func (s *ServiceSpec) MachineDisk() skerry.Bytes {
	if s.Machine == nil {
		return 0
	}
	return s.Machine.Disk
}

// AtMost is what an instance may use at most, its limits in place of what it is sure of, and a machine the whole of its disk. Quotas bound
// it.
func (s *ServiceSpec) AtMost() Resources {
	out := s.sum(Resources.atMost)
	if more := s.MachineDisk() - s.Resources.atMost().Storage; more > 0 {
		out = out.Add(Resources{Storage: more})
	}
	return out
}

// LimitsIO reports whether a container of the service is to be limited in what it reads and writes.
func (s *ServiceSpec) LimitsIO() bool {
	is := s.Resources.IO != IOLimits{}
	for _, list := range [][]SideContainer{s.Init, s.Sidecars} {
		is = is || slices.ContainsFunc(list, func(c SideContainer) bool { return c.Resources.IO != IOLimits{} })
	}
	return is
}

// DiffersInLimits reports whether two versions of a service differ in cpu and memory of their containers, and in nothing else
// that makes a revision.
func (s *ServiceSpec) DiffersInLimits(o *ServiceSpec) bool {
	return s.Revision() != o.Revision() && s.withoutLimits() == o.withoutLimits()
}

// withoutLimits is the revision of the service if it asked for no cpu and no memory.
func (s *ServiceSpec) withoutLimits() string {
	t := *s
	t.Resources.CPU, t.Resources.Memory, t.Resources.Limits = 0, 0, Limits{}
	t.Init, t.Sidecars = slices.Clone(s.Init), slices.Clone(s.Sidecars)
	for _, list := range [][]SideContainer{t.Init, t.Sidecars} {
		for i := range list {
			list[i].Resources.CPU, list[i].Resources.Memory, list[i].Resources.Limits = 0, 0, Limits{}
		}
	}
	return t.Revision()
}

// Need is what one instance of the service reserves: its own resources, those of its side containers, and its volumes. Init
// containers run before the main one, so only the excess of the largest counts.
func (s *ServiceSpec) Need() Resources {
	sum := s.sum(func(r Resources) Resources { return r })
	sum.BandwidthOut = max(sum.BandwidthOut, s.linksBandwidth())
	return sum
}

// linksBandwidth is what an instance sends along its links.
func (s *ServiceSpec) linksBandwidth() (sum skerry.Bytes) {
	for _, l := range s.Links {
		sum += l.Bandwidth
	}
	return sum
}

// sum adds up what the containers of an instance have at a time, of what is taken of each one's resources.
func (s *ServiceSpec) sum(of func(Resources) Resources) Resources {
	sum := of(s.Resources)
	sum = sum.Add(Resources{Storage: s.volumeSizes()})
	for _, c := range s.Sidecars {
		sum = sum.Add(of(c.Resources))
	}
	a := sum.Vector()
	for _, c := range s.Init {
		for i, v := range of(c.Resources).Vector() {
			a[i] = max(a[i], v)
		}
	}
	out := FromVector(a)
	out.Pids = s.Resources.Pids
	return out
}
