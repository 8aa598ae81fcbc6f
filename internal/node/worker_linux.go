package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/overlay"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/overlay/wireguard"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/lease"
	"skerry.dev/skerry/runtime/native"
	"skerry.dev/skerry/runtime/oci"
	"skerry.dev/skerry/runtime/vm"
	"skerry.dev/skerry/runtime/wasm"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker"
)

// ShimCommand is the hidden command of this program that runs native.ShimMain.
const ShimCommand = "shim"

// WasmCommand is the hidden command of this program that runs wasm.RunMain.
const WasmCommand = "wasm-run"

// VMCommand is the hidden command of this program that runs vm.Main.
const VMCommand = "vm-run"

// KeepCommand is the hidden command of this program that runs containerd.KeepMain.
const KeepCommand = "containerd-keep"

// LeaseCommand is the hidden command of this program that runs lease.Main.
const LeaseCommand = "lease-guard"

// NFSCommand is the hidden command of this program that runs nfsmount.Main.
const NFSCommand = "nfs-mount"

// WorkerConfig sets up a worker.
type WorkerConfig struct {
	Common
	Join
	Facts        worker.FactOptions
	Attach       worker.AttachOptions
	Subnet       netip.Prefix   // of instances; the zero value chooses one
	OpenHost     bool           // instances reach the machine's own services, and the networks of its links
	Closed       []netip.Prefix // further networks that they do not reach
	NoNetwork    bool           // instances get no network of their own
	RunDir       string         // default /run/skerry/NAME
	CgroupParent string         // default skerry/NAME
	Users        worker.UserPool
	Owners       oci.Owners   // how files belong to the users of user namespaces
	PullLimit    skerry.Bytes // per second; 0 means none
	MinFree      skerry.Bytes
	ProbeAddress string          // for round trips among workers, HOST:PORT; worker.NoProbing: none
	ProbeEvery   time.Duration   // from one to the next; default 8 s
	NoOverlay    bool            // instances are reached by ports of the host alone
	Dataplane    Dataplane       // how packets of the overlay are handled
	OverlayPort  uint16          // UDP port of sealed paths; 0: any
	PlainPort    uint16          // UDP port of plain ones, where the site's network is trusted; 0: none
	WireGuard    WireGuard       // whether the kernel's is used
	WGPort       uint16          // its UDP port; 0: any
	Flows        int             // TCP flows through service addresses at once; 0: by memory
	NoIngress    bool            // no clients outside are let in
	Machines     Machines        // virtual ones
	Containerd   Containerd      // of the machine's operator
	NFS          []spec.NFSGrant // what instances may have mounted; none: nothing
	Agent        worker.Agent    // exchanges the agent's program; nil: it cannot be
	// IngressListen are the host's addresses at which they are; none: all. IngressPublic are those that they are told, where
	// they differ.
	IngressListen, IngressPublic []netip.Addr
}

// Machines are what virtual machines need beside the programs that are installed.
type Machines struct {
	Kernel          string // an image, or a directory with boot/vmlinuz-* and lib/modules; empty: none for containers
	KernelSHA256    string // that it must have; empty: any
	Monitor         string // what runs those of containers, of vm.Monitors; empty: QEMU
	Firecracker     string // its program; empty: firecracker
	CloudHypervisor string // its program; empty: cloud-hypervisor
	Emulate         bool   // where KVM does not work
	Enabled         bool   // those that bring their own system: unikernels, disks
}

// Containerd is one that the machine's operator runs, and that is to run containers of ours. Without Socket there is
// none; what else is empty is the driver's to choose.
type Containerd struct {
	Socket, Shim, Binary string
	Classes              []ContainerdClass
}

// Worker is a worker with its store, images, drivers and network.
type Worker struct {
	*worker.Server
	Store   store.Store
	Images  *artifact.Store
	Drivers []runtime.Driver
	Network *hostnet.Network
	Device  overlay.Device // nil: no overlay
	Tunnel  *datapath
	Kernel  *wireguard.Link // nil: no WireGuard of the kernel
	// NoOverlay says why the worker takes no part in the overlay; empty: it does.
	NoOverlay string
	overlay   *worker.Overlay
	datapath  string // directory of the tunnel's process
	dir       string // of its files; empty: it has none
	runDir    string
}

// OpenWorker opens a worker, joining its cluster first if it has not; Run starts it.
func OpenWorker(ctx context.Context, c WorkerConfig) (w *Worker, err error) {
	if err := c.Fill(); err != nil {
		return nil, err
	}
	if err := skerry.CheckName(c.Join.Name); err != nil {
		return nil, err
	}
	ordinaryUmask()
	c.fillMachine()
	w = &Worker{dir: c.Dir, runDir: c.RunDir}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
			w = nil
		}
	}()
	repaired := ""
	if w.Store, repaired, err = c.openWorkerStore(ctx, c.OpenFrozen); err != nil {
		return w, err
	}
	w.Images, err = artifact.Open(filepath.Join(c.Dir, "images"), artifact.Options{Damaged: c.ImageDamaged, Aside: c.namesDamaged})
	if err != nil {
		return w, err
	}
	if err := c.rememberPlace(); err != nil {
		return w, err
	}
	if w.Drivers, err = c.drivers(); err != nil {
		return w, err
	}
	bootID := Boot()
	member, err := c.Member(ctx, wire.TierWorker, c.Join, nil, bootID)
	if err != nil {
		return w, err
	}
	secrets, err := vault.OpenSealedKey(ctx, c.Dir, vault.TPM{})
	if err != nil { // what needs no secrets is to run all the same, and what is asked for anew can be opened
		c.Log.Error("stored secrets cannot be decrypted", "err", err)
		if secrets, err = vault.Stopgap(err); err != nil {
			return w, err
		}
	}
	opt := worker.ServerOptions{Secrets: secrets, Name: member.Name(), Version: c.Version, Store: w.Store, Repaired: repaired, Dir: c.Dir,
		RunDir: c.RunDir, UserRegistry: userRegistry, Member: member, Boot: bootID, Machine: Machine(),
		Addrs: func() []string { return c.Parent }, Drivers: w.Drivers, Users: c.Users, Images: w.Images, Facts: c.Facts, Attach: c.Attach,
		Agent: c.Agent, MinFree: c.MinFree, ProbeAddress: c.ProbeAddress, ProbeEvery: c.ProbeEvery, Log: c.Log}
	if c.PullLimit > 0 {
		opt.PullLimit = rate.NewLimiter(rate.Limit(c.PullLimit), int(max(c.PullLimit, 256*skerry.KiB)))
	}
	if !c.NoNetwork {
		if w.Network, err = c.network(member.Name()); err != nil {
			return w, err
		}
		opt.Network = w.Network
	}
	if err := w.openOverlay(ctx, &c, member.Name()); err != nil {
		return w, err
	}
	opt.Overlay, opt.NoOverlay = w.overlay, w.NoOverlay
	self, err := os.Executable()
	if err != nil {
		return w, err
	}
	opt.NFS = worker.NFSOptions{Allowed: c.NFS, Helper: []string{self, NFSCommand}}
	opt.Guard, opt.CgroupParent = []string{self, LeaseCommand}, c.CgroupParent
	voter, err := succession.OpenVoter(c.Dir, member, c.Log)
	if err != nil {
		return w, err
	}
	opt.Voter, opt.Addrs = voter, func() []string { return append(voter.Candidates(), c.Parent...) }
	w.Server, err = worker.NewServer(opt)
	return w, err
}

// Close closes what the worker keeps; what runs runs on. Run must have ended.
func (w *Worker) Close() error {
	var errs []error
	for _, d := range w.Drivers {
		errs = append(errs, d.Close())
	}
	if w.Tunnel != nil {
		errs = append(errs, w.Tunnel.Close())
	}
	if w.Device != nil {
		errs = append(errs, w.Device.Close())
	}
	if w.Kernel != nil {
		errs = append(errs, w.Kernel.Close())
	}
	if w.Network != nil {
		errs = append(errs, w.Network.Close())
	}
	if w.Images != nil {
		errs = append(errs, w.Images.Close())
	}
	if w.Store != nil {
		errs = append(errs, w.Store.Close())
	}
	return errors.Join(errs...)
}

// CleanUp removes everything that runs on the machine for this worker. It is for a worker that leaves.
func (w *Worker) CleanUp(ctx context.Context) error {
	var errs []error
	// Before the drivers remove the group that it is in.
	if w.runDir != "" {
		errs = append(errs, lease.CleanUp(ctx, filepath.Join(w.runDir, worker.LeaseDir)))
	}
	if w.Tunnel != nil {
		errs = append(errs, w.Tunnel.Stop(ctx), os.RemoveAll(w.datapath))
	}
	if w.Device != nil {
		errs = append(errs, w.Device.CleanUp())
	}
	if w.Kernel != nil {
		errs = append(errs, w.Kernel.CleanUp())
	}
	errs = append(errs, w.cleanDrivers(ctx))
	if w.Network != nil {
		errs = append(errs, w.Network.CleanUp(ctx))
	}
	if w.dir != "" {
		errs = append(errs, worker.UnmountVolumes(w.dir))
		self, err := os.Executable()
		errs = append(errs, err, worker.UnmountNFS(ctx, w.dir, []string{self, NFSCommand}))
	}
	return errors.Join(errs...)
}

// runDir holds the run directories of workers that were given none.
const runDir = "/run/skerry"

// userRegistry is where the workers of a machine see each other's users. No worker has such a name.
const userRegistry = runDir + "/.users"

func (c *WorkerConfig) fillMachine() {
	if c.RunDir == "" {
		c.RunDir = filepath.Join(runDir, c.Join.Name)
	}
	if c.CgroupParent == "" {
		c.CgroupParent = "skerry/" + c.Join.Name
	}
}

// ordinaryUmask has directories and files of instances be as open as they are meant to be, whatever the shell that started the worker
// masks: users of containers could not enter those of theirs. What is the worker's alone is made for root alone in any case.
func ordinaryUmask() { unix.Umask(0o022) }

// openToUsers makes a directory, if need be, and has it that users of containers' own namespaces can enter it, whoever made it first:
// without that root in a container is root outside.
func openToUsers(dir string) error {
	err := os.MkdirAll(dir, 0o711)
	info, e := os.Stat(dir)
	if err = errors.Join(err, e); err == nil && info.Mode().Perm()&0o111 != 0o111 {
		err = os.Chmod(dir, info.Mode().Perm()|0o111)
	}
	return err
}

// drivers makes every driver of this build.
func (c *WorkerConfig) drivers() ([]runtime.Driver, error) {
	mounts := ""
	if filepath.Dir(c.RunDir) == runDir {
		if err := openToUsers(runDir); err != nil {
			return nil, err
		}
	}
	if c.RunDir != "" {
		mounts = filepath.Join(c.RunDir, spec.RuntimeOCI)
	}
	containers, err := oci.New(oci.Options{Dir: filepath.Join(c.Dir, "oci"), Mounts: mounts, CgroupParent: c.CgroupParent, Owners: c.Owners,
		Log: c.Log})
	if err != nil {
		return nil, err
	}
	out := []runtime.Driver{containers}
	sandboxes, err := oci.New(oci.GVisor(oci.Options{Dir: filepath.Join(c.Dir, spec.RuntimeGVisor), CgroupParent: c.CgroupParent, Log: c.Log}))
	if err != nil {
		return out, err
	}
	out = append(out, sandboxes)
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	if out, err = c.containerdDrivers(out, []string{self, KeepCommand}); err != nil {
		return out, err
	}
	processes, err := native.New(native.Options{Dir: filepath.Join(c.Dir, "native"), CgroupParent: c.CgroupParent,
		Shim: []string{self, ShimCommand}, Log: c.Log})
	if err != nil {
		return out, err
	}
	out = append(out, processes)
	modules, err := wasm.New(wasm.Options{Dir: filepath.Join(c.Dir, "wasm"), CgroupParent: c.CgroupParent, Shim: []string{self, ShimCommand},
		Run: []string{self, WasmCommand}, Log: c.Log})
	if err != nil {
		return out, err
	}
	out = append(out, modules)
	machines, err := vm.New(c.machines(spec.RuntimeMicroVM, self))
	if err != nil {
		return out, err
	}
	out = append(out, machines)
	kernels, err := vm.NewUnikernels(c.appliances(spec.RuntimeUnikernel, self))
	if err != nil {
		return out, err
	}
	out = append(out, kernels)
	computers, err := vm.NewComputers(c.appliances(spec.RuntimeVM, self))
	if err != nil {
		return out, err
	}
	return append(out, computers), nil
}

// machines are the options of a driver of containers in virtual machines.
func (c *WorkerConfig) machines(name, self string) vm.Options {
	return vm.Options{Dir: filepath.Join(c.Dir, name), CgroupParent: c.CgroupParent, Command: []string{self, VMCommand},
		Kernel: c.Machines.Kernel, KernelSHA256: c.Machines.KernelSHA256, Monitor: c.Machines.Monitor, Firecracker: c.Machines.Firecracker,
		CloudHypervisor: c.Machines.CloudHypervisor, Emulate: c.Machines.Emulate, Log: c.Log}
}

// appliances are the options of a driver of machines whose system is the image's own.
func (c *WorkerConfig) appliances(name, self string) vm.Options {
	return vm.Options{Dir: filepath.Join(c.Dir, name), CgroupParent: c.CgroupParent, Command: []string{self, VMCommand},
		Enabled: c.Machines.Enabled, Emulate: c.Machines.Emulate, Log: c.Log}
}

func (c *WorkerConfig) network(name string) (*hostnet.Network, error) {
	return hostnet.New(hostnet.Options{Name: name, Subnet: c.Subnet, OpenHost: c.OpenHost, Closed: c.Closed,
		StateDir: filepath.Join(c.Dir, "net"), RunDir: c.RunDir, Log: c.Log})
}

// cleanDrivers has all drivers clean up at the same time: each removes the group that they share, and waits until the others' tasks have
// left it.
func (w *Worker) cleanDrivers(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(w.Drivers))
	for i, d := range w.Drivers {
		if x, ok := d.(interface{ CleanUp(context.Context) error }); ok {
			all.Go(func() { errs[i] = x.CleanUp(ctx) })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// OpenDrivers opens every driver of this build without being a worker: none of what they run has a user namespace. Whoever calls it closes
// them, also those that come with an error.
func OpenDrivers(c WorkerConfig) ([]runtime.Driver, error) {
	if err := c.Fill(); err != nil {
		return nil, err
	}
	c.fillMachine()
	c.RunDir = "" // so that nothing of it is left
	return c.drivers()
}

// OpenMonitor opens a driver of containers in machines of one of vm.Monitors alone, beside those of OpenDrivers. Its name is the monitor's.
func OpenMonitor(c WorkerConfig, monitor string) (runtime.Driver, error) {
	if err := c.Fill(); err != nil {
		return nil, err
	}
	c.fillMachine()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	o := c.machines(monitor, self)
	o.Name, o.Monitor = monitor, monitor
	return vm.New(o)
}

// CheckMachine runs every driver's self-test without being a worker.
func CheckMachine(ctx context.Context, c WorkerConfig) (out []wire.RuntimeReport, err error) {
	if err := c.Fill(); err != nil {
		return nil, err
	}
	ordinaryUmask()
	c.fillMachine()
	// Users of user namespaces must be able to enter, which they cannot in most directories for data.
	c.RunDir = filepath.Join(runDir, fmt.Sprint("check-", os.Getpid()))
	w := &Worker{}
	w.Drivers, err = c.drivers()
	defer func() {
		err = errors.Join(err, w.Close())
		if os.Remove(c.RunDir) == nil {
			_ = os.Remove(runDir) // unless a worker is there
		}
	}()
	if err != nil {
		return nil, err
	}
	w.Server, err = worker.NewServer(worker.ServerOptions{Name: "check", Drivers: w.Drivers, Log: c.Log})
	if err != nil {
		return nil, err
	}
	out = w.Check(ctx)
	return out, w.CleanUp(ctx)
}

// CleanMachine removes everything that runs on the machine for a worker whose agent has ended. The name is needed only
// where the data directory holds no identity; run directory and cgroup only where it does not remember them.
func CleanMachine(ctx context.Context, c WorkerConfig) (err error) {
	if err := c.Fill(); err != nil {
		return err
	}
	if m, err := auth.OpenMember(filepath.Join(c.Dir, "identity")); err == nil {
		c.Join.Name = m.Name()
	}
	if err := skerry.CheckName(c.Join.Name); err != nil {
		return err
	}
	writable := func(ctx context.Context) (store.Store, error) { return store.Open(ctx, c.StoreURL, store.Options{}) }
	st, _, err := c.openWorkerStore(ctx, writable) // its lock makes sure that no agent runs
	if err != nil {
		return err
	}
	return errors.Join(c.cleanPlaces(ctx), st.Close())
}

// WorkerHealth is where a worker offers /metrics, /healthz and /readyz if nothing else is said.
const WorkerHealth = "127.0.0.1:7482"

// ServeHealth offers /metrics, /healthz and /readyz of the worker until ctx ends. It asks nobody who they are.
func (w *Worker) ServeHealth(ctx context.Context, addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for health and metrics: %w", err)
	}
	srv := &http.Server{Handler: w.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
