package main

import (
	"time"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
)

// workerFlags are those of a worker, on every system, so that help is the same everywhere.
type workerFlags struct {
	common         commonFlags
	join           joinFlags
	labels         []string
	taints         []string
	devices, cdi   []string
	cdiHooks       bool
	power          string
	area, location string
	capacity       skerry.Resources
	address        string
	subnet         string
	noNetwork      bool
	runDir, cgroup string
	users          string
	pull, minFree  skerry.Bytes
	http           string
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
	ingress        bool
	ingressAddress []string
	ingressPublic  []string
	guest          struct {
		kernel, sum string
		emulate     bool
		machines    bool
	}
	containerd struct{ socket, shim, binary string }
	// profileAfter is from the start to when the runtimes may be measured; 0: never.
	profileAfter time.Duration
}

func (w *workerFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&w.http, "http", workerHTTP, "address for /metrics, /healthz and /readyz; empty for none")
	w.addMachine(fs)
}

func (w *workerFlags) addMachine(fs *pflag.FlagSet) {
	fs.StringSliceVar(&w.labels, "label", nil, "label of the worker, KEY=VALUE; may be repeated")
	fs.StringSliceVar(&w.taints, "taint", nil, "keep services away that do not tolerate it, KEY or KEY=VALUE; may be repeated")
	fs.StringSliceVar(&w.devices, "device", nil, "name of a device that the worker offers; may be repeated")
	fs.StringSliceVar(&w.cdi, "cdi", nil, "directory with descriptions of devices that instances may have (Container Device Interface); may be repeated (default /etc/cdi, /var/run/cdi)")
	fs.BoolVar(&w.cdiHooks, "cdi-hooks", false, "run the programs that descriptions of devices name, as root")
	fs.StringVar(&w.power, "power", "", "what the machine draws in watts, idle and with all cores busy: IDLE,BUSY")
	fs.StringVar(&w.area, "area", "", "area in which the worker is")
	fs.StringVar(&w.location, "location", "", "where the worker is: latitude,longitude in degrees")
	fs.Var(cpuFlag(&w.capacity.CPU), "cpu", "cores that instances may use (default the machine's); more than twice those that it joined with count after skerry uncordon")
	fs.Var(bytesFlag(&w.capacity.Memory), "memory", "memory that instances may use (default the machine's, less a share for itself); more than twice that it joined with counts after skerry uncordon")
	fs.Var(bytesFlag(&w.capacity.Storage), "storage", "storage that instances may use (default what is free)")
	fs.IntVar(&w.capacity.GPUs, "gpus", 0, "graphics processors that instances may use (default those found)")
	fs.IntVar(&w.capacity.TPUs, "tpus", 0, "tensor processors that instances may use (default those found)")
	fs.Var(bytesFlag(&w.capacity.BandwidthIn), "bandwidth-in", "bytes per second that instances may receive (default the speed of the link, where it is known)")
	fs.Var(bytesFlag(&w.capacity.BandwidthOut), "bandwidth-out", "bytes per second that instances may send (default the speed of the link, where it is known)")
	fs.StringVar(&w.address, "address", "", "address at which other machines reach host ports (default found out)")
	fs.StringVar(&w.probeAddress, "probe-address", "", "where other workers measure round trips to this one by UDP, HOST:PORT, :PORT or off (default the worker's address, a port of the system's choice)")
	fs.DurationVar(&w.probeEvery, "probe-every", 0, "time from one question to another worker to the next, once the place in the network is found (default 8s)")
	fs.StringVar(&w.subnet, "subnet", "", "IPv4 subnet of the instances, such as 10.31.5.0/24 (default one that is free)")
	fs.BoolVar(&w.openHost, "open-host", false, "let instances reach this machine's own services and link-local addresses, such as a cloud's metadata")
	fs.StringSliceVar(&w.closed, "closed-networks", nil, "network that instances do not reach through this machine, such as 192.168.0.0/16; may be repeated. The overlay's own (see skerry worker status) must not be in it")
	fs.BoolVar(&w.noNetwork, "no-network", false, "give instances no network of their own")
	fs.BoolVar(&w.noOverlay, "no-overlay", false, "take no part in the overlay: instances are reached by ports of the host")
	fs.StringVar(&w.dataplane, "dataplane", "auto", "how packets of the overlay are handled: ebpf, nftables, or auto for the first that the kernel can")
	fs.Uint16Var(&w.overlayPort, "overlay-port", 0, "UDP port of sealed paths to other workers, where a firewall is to let it through (default any)")
	fs.StringVar(&w.wireguard, "wireguard", "auto", "whether paths to other workers are encrypted by the kernel's WireGuard where it has that: auto or off")
	fs.Uint16Var(&w.wireguardPort, "wireguard-port", 0, "UDP port of the kernel's WireGuard, where a firewall is to let it through (default any)")
	fs.Uint16Var(&w.plainPort, "plain-port", 7447, "UDP port of plain paths, used only where the cluster declared its network trusted; 0 for none")
	fs.BoolVar(&w.ingress, "ingress", true, "let clients outside in, for services with an ingress")
	fs.StringSliceVar(&w.ingressAddress, "ingress-address", nil, "address of this host that clients outside come to; may be repeated (default all)")
	fs.StringSliceVar(&w.ingressPublic, "ingress-public", nil, "address that clients outside are told, behind a translation of addresses; may be repeated (default those of the ingress, or --address)")
	fs.IntVar(&w.flows, "flows", 0, "TCP flows through service addresses at once (default by the machine's memory)")
	w.addGuest(fs)
	w.addContainerd(fs)
	fs.DurationVar(&w.profileAfter, "profile-after", 15*time.Minute, "how long after the start the runtimes are measured for placement, if that was not done in the last 30 days and less than half of the processors are busy; tried again after four times as long; 0: never")
	fs.StringVar(&w.runDir, "run-dir", "", "directory for what ends with the machine's uptime (default /run/skerry/NAME)")
	fs.StringVar(&w.cgroup, "cgroup-parent", "", "cgroup below which instances run (default skerry/NAME)")
	fs.StringVar(&w.users, "user-namespaces", "", "users of this host for user namespaces of containers, FIRST-LAST, of which each instance has 65536; or off: root in a container is root outside (default 1879048192-2147287039)")
	fs.Var(bytesFlag(&w.pull), "pull-limit", "bytes per second for pulling images (default no limit)")
	fs.Var(bytesFlag(&w.minFree), "min-free", "free space below which the worker takes nothing new (default 64Mi)")
}

// addContainerd adds what a containerd of the operator's needs.
func (w *workerFlags) addContainerd(fs *pflag.FlagSet) {
	fs.StringVar(&w.containerd.socket, "containerd", "", "socket of a containerd that is to run containers of runtime containerd, such as /run/containerd/containerd.sock (default none)")
	fs.StringVar(&w.containerd.shim, "containerd-shim", "", "shim that containerd is to use, as it names them (default io.containerd.runc.v2)")
	fs.StringVar(&w.containerd.binary, "containerd-binary", "", "OCI runtime that a shim of the runc family is to call, a name or path, such as crun (default the shim's)")
}

// addGuest adds what virtual machines need.
func (w *workerFlags) addGuest(fs *pflag.FlagSet) {
	fs.StringVar(&w.guest.kernel, "guest-kernel", "", "kernel of virtual machines for containers: its image, or a directory with boot/vmlinuz-* and lib/modules (default none: no such machines)")
	fs.StringVar(&w.guest.sum, "guest-kernel-sha256", "", "digest that this kernel must have, as skerry worker check tells it")
	fs.BoolVar(&w.guest.machines, "machines", false, "run virtual machines whose system comes with their image: unikernels and disks")
	fs.BoolVar(&w.guest.emulate, "emulate", false, "run virtual machines many times slower where KVM does not work; not for production")
}
