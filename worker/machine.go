//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/internal/topology"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// FactOptions say what an operator knows better than the machine. Zero entries are found out.
type FactOptions struct {
	Capacity spec.Resources // what instances may use; default: the machine less a share for itself
	Labels   map[string]string
	Area     string
	Location *spec.Location
	Address  string // at which other machines reach host ports
	Taints   []string
	Devices  []string
	Power    *wire.Power
	// Accelerators are the classes of devices that instances get for their gpus and tpus; nil: none.
	Accelerators *spec.Accelerators
}

// facts describes the machine.
func (s *Server) facts() core.Facts {
	var where map[string][]string
	f := wire.WorkerFacts{Arch: goruntime.GOARCH, OS: goruntime.GOOS, Labels: s.opt.Facts.Labels, Area: s.opt.Facts.Area,
		Location: s.opt.Facts.Location, Address: hostAddress(s), Version: s.opt.Version,
		Taints: s.opt.Facts.Taints, Devices: s.opt.Facts.Devices, Power: s.opt.Facts.Power,
		Accelerators: s.opt.Facts.Accelerators, Egress: s.opt.Network != nil, Levels: true, Signatures: true,
		Features: spec.AgentFeatures()}
	f.Attachable, f.DeviceDetails, where = s.attach.list()
	if len(s.opt.NFS.Allowed) == 0 { // nobody comes here in vain
		f.Features = slices.DeleteFunc(f.Features, func(feature string) bool { return feature == spec.FeatureNFS })
	}
	f.Runtimes = s.runtimes.last()
	s.mu.Lock()
	rtt := s.rtt
	s.mu.Unlock()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	f.Capacity = capacity(s.opt.Dir)
	if v, given := f.Capacity.Vector(), s.opt.Facts.Capacity.Vector(); true {
		for i := range v {
			if given[i] > 0 {
				v[i] = given[i]
			}
		}
		f.Capacity = spec.FromVector(v)
	}
	if rtt != nil {
		f.Probe = rtt.Address(s.opt.ProbeAddress, f.Address)
	}
	if s.overlayNet != nil {
		f.Overlay = s.overlayNet.tell(context.Background(), f.Address, s.opt.Network.Networks())
	}
	f.Agent = s.program.last()
	return core.Facts{Facts: f, Devices: where}
}

// freeAt is the free space of the file system that a directory is on, and whether it is known.
func freeAt(dir string) (skerry.Bytes, bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return skerry.Bytes(st.Bavail) * skerry.Bytes(st.Bsize), true
}

// diskUsed is how much of the file system that a directory is on is taken, by whomever; 0 if that is not known.
func diskUsed(dir string) skerry.Bytes {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Bfree > st.Blocks {
		return 0
	}
	return skerry.Bytes(st.Blocks-st.Bfree) * skerry.Bytes(st.Bsize)
}

// capacity is what the machine has, less 5 % of memory and 64 MiB for the system itself.
func capacity(dir string) spec.Resources {
	r := spec.Resources{CPU: skerry.MilliCPU(1000 * goruntime.NumCPU())}
	if m, err := topology.Read(os.DirFS("/sys")); err == nil {
		r.ExclusiveCPUs = len(m.Lendable())
	}
	if total, _ := memory(); total > 0 {
		r.Memory = max(total-total/20-64*skerry.MiB, 0)
	}
	r.Storage, _ = freeAt(dir)
	r.Storage += volumeBytes(dir)
	r.GPUs, r.TPUs = accelerators("/dev")
	r.HugePages = hugePages("/sys/kernel/mm/hugepages")
	r.BandwidthIn = linkBandwidth()
	r.BandwidthOut = r.BandwidthIn
	return r
}

// memory reads total and available memory.
func memory() (total, available skerry.Bytes) {
	var buf [4 << 10]byte
	text, err := files.Peek("/proc/meminfo", buf[:])
	if err != nil {
		return 0, 0
	}
	return parseMemory(text)
}

// hostAddress is the address at which host ports of this worker are reached, or empty if it is not known.
func hostAddress(s *Server) string {
	if s.opt.Facts.Address != "" {
		return s.opt.Facts.Address
	}
	return outboundAddress(s.opt.Addrs)
}

// outboundAddress is the address that this machine has towards its cluster. Nothing is sent to find out.
func outboundAddress(addrs func() []string) string {
	if addrs == nil {
		return ""
	}
	for _, a := range addrs() {
		c, err := net.Dial("udp", a)
		if err != nil {
			continue
		}
		defer c.Close()
		if u, ok := c.LocalAddr().(*net.UDPAddr); ok {
			return u.IP.String()
		}
	}
	return ""
}

// usage keeps what is needed to turn counters into rates. Only measure touches it.
type usage struct {
	files machineCounters
	at    time.Time
	by    map[skerry.InstanceID]counters
	busy  float64
	total float64
	disk  int64 // milliseconds in which disks were busy
}

// counters of one instance grow as long as it runs.
type counters struct {
	cpu, waiting       time.Duration
	periods, throttled uint64
	disk, network      int64 // bytes
}

func (c counters) since(o counters) counters {
	return counters{max(0, c.cpu-o.cpu), max(0, c.waiting-o.waiting), c.periods - min(c.periods, o.periods),
		c.throttled - min(c.throttled, o.throttled), max(0, c.disk-o.disk), max(0, c.network-o.network)}
}

// measure tells the core what is used, until ctx ends.
func (m *meter) measure(ctx context.Context, l *loop.Loop) {
	tick := time.NewTicker(core.UsualMeasure)
	defer tick.Stop()
	defer m.usage.files.close()
	refused := ""
	pruned, asked := time.Now(), time.Now()
	for {
		l.Post(m.usageNow(ctx, l))
		if now := time.Now(); now.Sub(asked) > time.Minute {
			asked = now
			m.net.tellRefused(m.opt.Log)
		}
		if now := time.Now(); now.Sub(pruned) > pruneEvery || refused != "" && now.Sub(pruned) > time.Minute {
			pruned = now
			m.prune(ctx, now)
		}
		text := ""
		if free, ok := freeAt(m.opt.Dir); ok && free < m.opt.MinFree {
			text = fmt.Sprintf("its disk is nearly full (less than %s free at %s)", m.opt.MinFree, filepath.Dir(m.opt.Dir))
		}
		if text != refused {
			refused = text
			l.Post(core.Refuse{Text: text})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-m.nudge:
		case every := <-m.pace:
			if every <= 0 {
				every = core.UsualMeasure
			}
			tick.Reset(every)
		}
	}
}

// Images that nothing here refers to are kept for a while, because what was taken away often comes back.
const (
	pruneEvery = time.Hour
	keepImages = 24 * time.Hour
)

// prune removes images that no instance here uses and that were not used for a day, or, when the disk is nearly full, an
// hour.
func (s *Server) prune(ctx context.Context, now time.Time) {
	var used []digest.Digest
	strays := false
	err := s.Role.View(ctx, func(c loop.Core) {
		strays = core.Strays(c.(*core.Core))
		for d := range c.(*core.Core).Images() {
			used = append(used, imageDigest(d))
		}
	})
	if err != nil || s.opt.Images == nil || strays { // it is not known which images they run from
		return
	}
	keep := keepImages
	if free, ok := freeAt(s.opt.Dir); ok && free < 2*s.opt.MinFree {
		keep = time.Hour
	}
	inUse := map[digest.Digest]bool{}
	for _, d := range used {
		inUse[d] = true
	}
	p, err := s.opt.Images.Prune(used, now.Add(-keep), func(e artifact.Entry) bool { return inUse[e.Digest] })
	if err != nil {
		s.opt.Log.Warn("prune images", "err", err)
	} else if p.Bytes > 0 {
		s.opt.Log.Info("images pruned", "names", len(p.Names), "bytes", p.Bytes)
	}
	pruneUsers(ctx, s, now.Add(-keep))
}

// imageDigest gives the digest of a reference that ends with one, or is one.
func imageDigest(ref string) digest.Digest {
	if _, after, ok := strings.Cut(ref, "@"); ok {
		ref = after
	}
	return digest.Digest(ref)
}

// InstanceStats is the use of one container.
type InstanceStats struct {
	App       skerry.ServiceKey `json:"service"`
	Instance  skerry.InstanceID `json:"instance"`
	Container string            `json:"container"`
	CPULimit  skerry.MilliCPU   `json:"cpuLimit,omitempty"`
	Stats     runtime.Stats     `json:"stats"`
	RxBytes   int64             `json:"rxBytes"`
	TxBytes   int64             `json:"txBytes"`
	// Links is the round trip, in milliseconds, to each service that the instance is linked to with a limit.
	Links map[string]float64 `json:"links,omitempty"`
}

// Stats reads the counters of every running container.
func (s *Server) Stats(ctx context.Context) ([]InstanceStats, error) {
	type running struct {
		InstanceStats
		handle     json.RawMessage
		assignment *spec.Assignment
	}
	list, err := tier.View(ctx, s.Role, func(c *core.Core) (list []running, _ error) {
		c.Running(func(a *spec.Assignment, name string, handle json.RawMessage) {
			_, res := containerOf(&a.Spec, name)
			own := *a // the core's own may change
			list = append(list, running{InstanceStats{App: a.Service, Instance: a.ID, Container: name, CPULimit: res.MostCPU()}, handle, &own})
		})
		return list, nil
	})
	if len(list) == 0 {
		return []InstanceStats{}, err
	}
	out, traffic := make([]InstanceStats, 0, len(list)), s.net.stats()
	for _, r := range list {
		d, h, err := s.runtimes.of(r.handle)
		if err != nil {
			continue
		}
		if st, ok := d.(runtime.Statser); ok {
			if r.Stats, err = st.Stats(ctx, h); err != nil {
				continue // it has just ended, or this process has no descriptors left
			}
		}
		if r.Container == spec.MainContainer {
			r.Links = s.meter.links.of(r.assignment)
			seen := traffic[string(r.Instance)]
			r.RxBytes, r.TxBytes = int64(seen.RxBytes), int64(seen.TxBytes)
		}
		out = append(out, r.InstanceStats)
	}
	return out, err
}

func (m *meter) usageNow(ctx context.Context, l *loop.Loop) core.Usage {
	var in []wire.IngressUse
	if e := m.workerIngress.Load(); e != nil {
		in = m.arrivals.look(time.Now(), e.in.Stats().Routes)
	}
	use := core.Usage{Ingress: in, Instances: map[skerry.InstanceID]wire.QoS{}, Pressure: m.usage.files.pressure(),
		Coordinate: m.rtt.Place(), Heard: m.rtt.Heard(heardEach)}
	if up := m.up.Load(); up != nil {
		use.RTT, use.Loss = up.Quality()
	}
	now := time.Now()
	span := now.Sub(m.usage.at)
	first := m.usage.at.IsZero()
	by := map[skerry.InstanceID]counters{}
	list, err := m.Stats(ctx)
	if err != nil {
		return use
	}
	for _, x := range list {
		q, k := use.Instances[x.Instance], by[x.Instance]
		k.cpu, k.waiting = k.cpu+x.Stats.CPU, k.waiting+x.Stats.Waiting
		k.periods, k.throttled = k.periods+x.Stats.Periods, k.throttled+x.Stats.ThrottledPeriods
		if x.Links != nil {
			q.Links = x.Links
		}
		q.Memory += x.Stats.MemoryWorkingSet
		q.OOMKills += int64(x.Stats.OOMKills)
		q.RxBytes, q.TxBytes = q.RxBytes+x.RxBytes, q.TxBytes+x.TxBytes
		q.ReadBytes, q.WriteBytes = q.ReadBytes+int64(x.Stats.DiskRead), q.WriteBytes+int64(x.Stats.DiskWrite)
		k.disk, k.network = q.ReadBytes+q.WriteBytes, q.RxBytes+q.TxBytes
		use.Instances[x.Instance], by[x.Instance] = q, k
	}
	diskMs, disks := m.usage.files.diskTime()
	var diskBytes int64
	for id, k := range by {
		if before, ok := m.usage.by[id]; ok {
			diskBytes += k.since(before).disk
		}
	}
	bandwidth := sync.OnceValue(m.bandwidth)
	for id, k := range by {
		before, ok := m.usage.by[id]
		if !ok || span <= 0 {
			continue
		}
		d, q := k.since(before), use.Instances[id]
		q.CPU = skerry.MilliCPU(1000 * d.cpu / span)
		q.Waiting = min(1, float64(d.waiting)/float64(span))
		if d.periods > 0 {
			q.Throttled = float64(d.throttled) / float64(d.periods)
		}
		if diskBytes > 0 && disks > 0 {
			// Its part of the bytes stands for its part of the time in which disks were busy.
			q.Disk = min(1, float64(d.disk)/float64(diskBytes)*float64(diskMs-m.usage.disk)/float64(span.Milliseconds()+1)/float64(disks))
		}
		q.Network = shareOf(d.network, span, bandwidth)
		q.ProbeMs = m.prober.probeTime(id)
		use.Instances[id] = q
	}
	busy, total := m.usage.files.cpuTimes()
	if !first && total > m.usage.total {
		share := (busy - m.usage.busy) / (total - m.usage.total)
		use.Used.CPU = skerry.MilliCPU(share * 1000 * float64(goruntime.NumCPU()))
	}
	if all, free := m.usage.files.memory(); all > 0 {
		use.Used.Memory = all - free
	}
	use.Used.Storage = diskUsed(m.opt.Dir)
	m.usage = usage{files: m.usage.files, at: now, by: by, busy: busy, total: total, disk: diskMs}
	return use
}

// shareOf gives the share of a bandwidth that some bytes took, or 0 where it is not known. At rest nobody asks for it: it costs opening two
// files, one of which waits for the lock of the kernel's network configuration.
func shareOf(bytes int64, span time.Duration, bandwidth func() skerry.Bytes) float64 {
	if bytes <= 0 {
		return 0
	}
	all := bandwidth()
	if all <= 0 {
		return 0
	}
	return min(1, float64(bytes)/span.Seconds()/float64(all))
}

// bandwidth is what the machine can send and receive together, in bytes per second, or 0 where that is not known.
func (m *meter) bandwidth() skerry.Bytes {
	in, out := m.opt.Facts.Capacity.BandwidthIn, m.opt.Facts.Capacity.BandwidthOut
	if in == 0 || out == 0 {
		link := linkBandwidth()
		in, out = max(in, link), max(out, link)
	}
	return in + out
}

// mountMemory mounts a tmpfs, unless it is there.
func mountMemory(path string, size skerry.Bytes) error {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	if here, err := isMemory(path); err != nil || here {
		return err
	}
	return unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d,mode=1777", int64(size)))
}

// isMemory reports whether a tmpfs is mounted at a path.
func isMemory(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil || st.Type != unix.TMPFS_MAGIC {
		return false, err
	}
	return isMountPoint(path)
}

func isMountPoint(path string) (bool, error) {
	var a, b unix.Stat_t
	if err := unix.Stat(path, &a); err != nil {
		return false, err
	}
	err := unix.Stat(filepath.Dir(path), &b)
	return a.Dev != b.Dev, err
}

// ofWorker refuses what can be no directory of a worker: what is removed, or unmounted, must never be everything.
func ofWorker(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Dir(dir) == "/" {
		return fmt.Errorf("%q is no directory of a worker: %w", dir, os.ErrInvalid)
	}
	return nil
}

// removeMounted removes a directory with what is in it, after unmounting what is mounted there, which is never removed.
func removeMounted(dir string) error {
	if err := ofWorker(dir); err != nil {
		return err
	}
	return files.RemoveUnmounted(dir)
}

// unmountBelow takes away every mount below a directory.
func unmountBelow(dir string) error {
	if err := ofWorker(dir); err != nil {
		return err
	}
	dir, err := filepath.EvalSymlinks(dir) // as the kernel writes it
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	written := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 4 {
			if point := written.Replace(f[4]); strings.HasPrefix(point, dir+"/") {
				points = append(points, point)
			}
		}
	}
	slices.Sort(points)
	slices.Reverse(points)
	for _, p := range points {
		if err := unix.Unmount(p, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", p, err)
		}
	}
	return nil
}

func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return syscall.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if n := unix.SignalNum(name); n != 0 {
		return n, nil
	}
	return 0, fmt.Errorf("%q is not a signal; write a name such as SIGTERM or a number", s)
}

func signalName(n int) string {
	if name := unix.SignalName(syscall.Signal(n)); name != "" {
		return name
	}
	return "signal " + strconv.Itoa(n)
}
