package agent

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/devices"
	"skerry.dev/skerry/spec"
)

// defaultHTTP is where a worker tells of itself: the port after those of root and cluster.
const defaultHTTP = "127.0.0.1:7482"

// Flags are those of a worker, on every system, so that help is the same everywhere.
type Flags struct {
	Common         role.CommonFlags
	Join           role.JoinFlags
	HTTP           string // address of /metrics, /healthz and /readyz; empty: none
	labels         []string
	taints         []string
	devices, cdi   []string
	cdiHooks       bool
	deviceClasses  []string
	deviceFile     string
	accelerators   spec.Accelerators
	power          string
	area, location string
	capacity       spec.Resources
	address        string
	subnet         string
	noNetwork      bool
	instanceLogs   bool
	runDir, cgroup string
	users, owners  string
	pull, minFree  skerry.Bytes
	probeAddress   string
	probeEvery     time.Duration
	noOverlay      bool
	dataplane      string
	overlayPort    uint16
	plainPort      uint16
	wireguard      string
	wireguardPort  uint16
	flows          int
	openHost       bool
	closed         []string
	nfs            []string
	ingress        bool
	ingressAddress []string
	ingressPublic  []string
	guest          struct {
		kernel, sum, monitor         string
		firecracker, cloudHypervisor string
		emulate                      bool
		machines                     bool
	}
	containerd struct {
		socket, shim, binary string
		classes              []string
	}
	// profileAfter is from the start to when the runtimes may be measured; 0: never.
	profileAfter time.Duration
}

// Add declares them all but those of Common and Join.
func (w *Flags) Add(fs *pflag.FlagSet) {
	fs.StringVar(&w.HTTP, "http", defaultHTTP, "address of /metrics, /healthz and /readyz; empty to disable")
	w.addMachine(fs)
}

func (w *Flags) addMachine(fs *pflag.FlagSet) {
	fs.StringSliceVar(&w.labels, "label", nil, "label of the worker, KEY=VALUE; may be repeated")
	fs.StringSliceVar(&w.taints, "taint", nil, "taint, KEY or KEY=VALUE: only services that tolerate it are placed here; may be repeated")
	fs.StringSliceVar(&w.devices, "device", nil, "name of a device that the worker offers; may be repeated")
	fs.StringSliceVar(&w.cdi, "cdi", nil,
		"directory with Container Device Interface descriptions of devices for instances; may be repeated (default /etc/cdi, /var/run/cdi)")
	fs.StringVar(&w.accelerators.GPUs, "gpu-class", "",
		"class of devices that a container gets for its gpus, VENDOR/CLASS; without it they are only counted")
	fs.StringVar(&w.accelerators.TPUs, "tpu-class", "",
		"class of devices that a container gets for its tpus, VENDOR/CLASS; without it they are only counted")
	fs.StringArrayVar(&w.deviceClasses, "device-class", nil,
		"offer instances devices that the worker finds, [NAME=]KIND[,LABEL=VALUE...][,shares=N], such as plc=serial,vendor=0403; KIND is "+
			strings.Join(devices.Kinds(), ", ")+" (the last two with interface=NAME), or a class of CDI with shares; may be repeated (default none)")
	fs.StringVar(&w.deviceFile, "device-file", "", "file (YAML) that lists devices by hand: class, name, nodes or address, labels, shares")
	fs.BoolVar(&w.cdiHooks, "cdi-hooks", false, "run the hooks of device descriptions, as root")
	fs.StringVar(&w.power, "power", "", "power draw of the machine in watts, idle and with all cores busy: IDLE,BUSY")
	fs.StringVar(&w.area, "area", "", "area of the worker")
	fs.StringVar(&w.location, "location", "", "location of the worker: latitude,longitude in degrees")
	fs.Var(role.CPUFlag(&w.capacity.CPU), "cpu",
		"cores that instances may use (default all); more than twice the number at joining counts only after skerry uncordon")
	fs.Var(role.BytesFlag(&w.capacity.Memory), "memory",
		"memory that instances may use (default all but a share for the system); more than twice the amount at joining counts only after skerry uncordon")
	fs.Var(role.BytesFlag(&w.capacity.Storage), "storage", "storage that instances may use (default the free space)")
	fs.IntVar(&w.capacity.GPUs, "gpus", 0, "graphics processors that instances may use (default: detected)")
	fs.IntVar(&w.capacity.TPUs, "tpus", 0, "tensor processors that instances may use (default: detected)")
	fs.Var(role.BytesFlag(&w.capacity.BandwidthIn), "bandwidth-in",
		"bytes per second that instances may receive (default the link's speed, if known)")
	fs.Var(role.BytesFlag(&w.capacity.BandwidthOut), "bandwidth-out",
		"bytes per second that instances may send (default the link's speed, if known)")
	fs.StringVar(&w.address, "address", "", "address at which other machines reach host ports (default: detected)")
	fs.StringVar(&w.probeAddress, "probe-address", "",
		"UDP address where other workers measure round trips to this one, HOST:PORT, :PORT or off (default the worker's address and any free port)")
	fs.DurationVar(&w.probeEvery, "probe-every", 0,
		"interval between measurements to other workers, once the network coordinate is stable (default 8s)")
	fs.StringVar(&w.subnet, "subnet", "", "IPv4 subnet of the instances, such as 10.31.5.0/24 (default: an unused one)")
	fs.BoolVar(&w.openHost, "open-host", false, "let instances reach this machine's own services and link-local addresses, such as a cloud's metadata")
	fs.StringSliceVar(&w.closed, "closed-networks", nil,
		"network that instances may not reach through this machine, such as 192.168.0.0/16; may be repeated. It must not contain the overlay's network (see skerry worker status)")
	fs.StringSliceVar(&w.nfs, "nfs", nil,
		"what instances may have mounted of an NFS server, SERVER or SERVER:/PATH with what is below it; may be repeated (default nothing)")
	fs.BoolVar(&w.instanceLogs, "otlp-instance-logs", false, "push what instances write, too, to the collector of --otlp")
	fs.BoolVar(&w.noNetwork, "no-network", false, "give instances no network namespace of their own")
	fs.BoolVar(&w.noOverlay, "no-overlay", false, "do not join the overlay: instances are reachable through host ports")
	fs.StringVar(&w.dataplane, "dataplane", "auto",
		"data plane of the overlay: ebpf, nftables, or auto for the first that the kernel supports")
	fs.Uint16Var(&w.overlayPort, "overlay-port", 0, "UDP port of encrypted paths to other workers, for firewall rules (default any)")
	fs.StringVar(&w.wireguard, "wireguard", "auto",
		"use the kernel's WireGuard, if present, to encrypt paths to other workers: auto or off")
	fs.Uint16Var(&w.wireguardPort, "wireguard-port", 0, "UDP port of the kernel's WireGuard, for firewall rules (default any)")
	fs.Uint16Var(&w.plainPort, "plain-port", 7447,
		"UDP port of unencrypted paths, used only if the cluster trusts its network; 0 to disable")
	fs.BoolVar(&w.ingress, "ingress", true, "serve ingresses to clients outside the overlay")
	fs.StringSliceVar(&w.ingressAddress, "ingress-address", nil,
		"address of this host on which ingresses listen; may be repeated (default all)")
	fs.StringSliceVar(&w.ingressPublic, "ingress-public", nil,
		"public address of ingresses, if the worker is behind NAT; may be repeated (default those of the ingress, or --address)")
	fs.IntVar(&w.flows, "flows", 0, "maximum TCP flows through service addresses (default by the machine's memory)")
	w.addGuest(fs)
	w.addContainerd(fs)
	fs.DurationVar(&w.profileAfter, "profile-after", 15*time.Minute,
		"delay after the start before runtimes are measured for placement, unless measured in the last 30 days; retried after four times as long if half of the processors are busy; 0: never")
	fs.StringVar(&w.runDir, "run-dir", "", "directory for state that a reboot may delete (default /run/skerry/NAME)")
	fs.StringVar(&w.cgroup, "cgroup-parent", "", "cgroup below which instances run (default skerry/NAME)")
	fs.StringVar(&w.users, "user-namespaces", "",
		"host user IDs for containers' user namespaces, FIRST-LAST, 65536 for each instance; off makes root in a container root on the host (default 1879048192-2147287039)")
	fs.StringVar(&w.owners, "file-owners", "auto",
		"how files belong to the users of containers' user namespaces: mapped (by the kernel), copied (one range of users, and copies of images, for each organisation), or auto (copied if mapping does not work)")
	fs.Var(role.BytesFlag(&w.pull), "pull-limit", "bytes per second for pulling images (default no limit)")
	fs.Var(role.BytesFlag(&w.minFree), "min-free", "free space below which the worker gets no new instances (default 64Mi)")
}

// addContainerd adds what a containerd of the operator's needs.
func (w *Flags) addContainerd(fs *pflag.FlagSet) {
	fs.StringVar(&w.containerd.socket, "containerd", "",
		"socket of the containerd for runtime containerd, such as /run/containerd/containerd.sock (default none)")
	fs.StringVar(&w.containerd.shim, "containerd-shim", "", "containerd shim to use (default io.containerd.runc.v2)")
	fs.StringVar(&w.containerd.binary, "containerd-binary", "",
		"name or path of the OCI runtime for shims of the runc family, such as crun (default the shim's)")
	fs.StringArrayVar(&w.containerd.classes, "containerd-class", nil,
		"`class` of containers that services may name, NAME=SHIM[,isolation=shared|sandboxed|hardware][,binary=PROGRAM][,snapshotter=NAME], such as kata=io.containerd.kata.v2,isolation=hardware; offered once its self-test saw that isolation; may be repeated")
}

// addGuest adds what virtual machines need.
func (w *Flags) addGuest(fs *pflag.FlagSet) {
	fs.StringVar(&w.guest.kernel, "guest-kernel", "",
		"guest kernel for containers in virtual machines: its image, or a directory with boot/vmlinuz-* and lib/modules (default none: runtime disabled)")
	fs.StringVar(&w.guest.sum, "guest-kernel-sha256", "", "required digest of this kernel, as shown by skerry worker check")
	fs.StringVar(&w.guest.monitor, "microvm-monitor", "qemu",
		"what runs containers in virtual machines: qemu, firecracker, cloud-hypervisor, or auto for Firecracker wherever it can and QEMU for the rest")
	fs.StringVar(&w.guest.firecracker, "firecracker", "",
		"program of Firecracker, name or path, with its jailer beside it (default firecracker)")
	fs.StringVar(&w.guest.cloudHypervisor, "cloud-hypervisor", "", "program of Cloud Hypervisor, name or path (default cloud-hypervisor)")
	fs.BoolVar(&w.guest.machines, "machines", false, "run virtual machines that boot their image: unikernels and disks")
	fs.BoolVar(&w.guest.emulate, "emulate", false,
		"emulate virtual machines where KVM does not work; many times slower, not for production")
}
