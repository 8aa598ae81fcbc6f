//go:build linux

package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// boards are the machines of other architectures.
var boards = map[string]struct{ program, pkg, cpu, console string }{
	"arm64":   {"qemu-system-aarch64", "qemu-system-arm", "cortex-a57", "ttyAMA0"},
	"riscv64": {"qemu-system-riscv64", "qemu-system-misc", "rv64", "ttyS0"},
}

// TestGuestsOfOtherArchitectures boots a machine of each with a kernel of Debian's, whose worker joins a site of this machine's architecture over a
// wire between them. It runs native processes, containers and modules, each in what is built for it, and its instances and those here reach each
// other through the overlay. What is built for this architecture alone is refused for it before anything is sent.
func TestGuestsOfOtherArchitectures(t *testing.T) {
	testenv.Long(t, "TestWorkersOfOtherArchitectures")
	const host = "198.51.100.1"
	connect(t, host)
	// One after the other: each of them takes a whole processor of this machine's.
	for _, arch := range []string{"arm64", "riscv64"} {
		if arch == goruntime.GOARCH {
			continue
		}
		t.Run(arch, func(t *testing.T) {
			s := (&site{t: t, address: host, patience: 10 * time.Minute}).open()
			s.guest(arch, "198.51.100.2")
			s.withGuest(arch)
		})
	}
}

// withGuest has this machine's worker and one of another architecture run everything that both can.
func (s *site) withGuest(arch string) {
	t := s.t
	archs := []string{goruntime.GOARCH, arch}
	began := time.Now()
	reached := func(what string) { t.Logf("%5.1f s: %s", time.Since(began).Seconds(), what) }
	names := map[string]skerry.WorkerName{}
	s.await("both have joined", func() bool {
		list, _ := s.Cluster.Workers(t.Context())
		for _, w := range list {
			if w.Connected && w.Facts != nil {
				names[w.Facts.Arch] = w.Name
			}
		}
		return len(names) == len(archs)
	})
	reached("the worker has joined")
	list, err := s.Cluster.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range list {
		for _, r := range []string{spec.RuntimeNative, spec.RuntimeOCI, spec.RuntimeWasm} {
			if !slices.Contains(w.Facts.PassedRuntimes(), r) {
				t.Errorf("%s: runtime %s does not work: %+v", w.Name, r, w.Facts.Runtimes)
			}
		}
		if o := w.Facts.Overlay; o == nil || o.Path != string(node.DataplaneEBPF) {
			t.Errorf("%s: its kernel does not handle the overlay's packets by BPF programs: %+v", w.Name, o)
		}
	}
	s.kits("test/kit:1", archs...)
	s.kits("test/own:1", goruntime.GOARCH)
	module := filepath.Join(t.TempDir(), "greet")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", module, "skerry.dev/skerry/examples/greet")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := s.Root.Images.Store.Build(t.Context(), artifact.BuildOptions{Source: module, Tag: "skerry.local/test/greet:1"}); err != nil {
		t.Fatal(err)
	}
	var all []spec.ServiceSpec
	add := func(x spec.ServiceSpec) { all = append(all, x) }
	address := map[string]netip.Addr{}
	for i, arch := range archs {
		on := func(name, image, runtime string, args ...string) spec.ServiceSpec {
			return service(name+"-"+arch, image, func(x *spec.ServiceSpec) {
				x.Runtime, x.Args, x.Placement.Worker = runtime, args, string(names[arch])
				x.Resources.Memory = 96 * skerry.MiB
			})
		}
		address[arch] = netip.AddrFrom4([4]byte{10, 30, 9, byte(1 + i)})
		web := on("web", "test/kit:1", spec.RuntimeOCI, "answer", ":8080")
		web.Ports, web.Addresses = []spec.Port{{Name: "http", Port: 8080}}, &spec.ServiceAddresses{RoundRobin: address[arch]}
		add(web)
		add(on("bare", "test/kit:1", spec.RuntimeNative, "clock", "/tmp/clock"))
		greet := on("greet", "test/greet:1", spec.RuntimeWasm)
		greet.Wasm, greet.Ports = &spec.Wasm{Handler: "http"}, []spec.Port{{Name: "http", Port: 80, HostPort: -1}}
		// For riscv64 the engine has no compiler, and its interpreter is emulated: a request takes it a second of a whole processor.
		greet.Resources = spec.Resources{CPU: 500, Memory: 384 * skerry.MiB}
		greet.Probes = spec.Probes{Readiness: &spec.Probe{HTTP: &spec.HTTPProbe{Port: 80, Path: "/"}, Timeout: spec.Duration(10 * time.Second)}}
		add(greet)
	}
	s.do(app("fleet", all...))
	s.await("everything runs everywhere", s.ready(len(all)))
	reached("everything runs on both")
	// Each asks all others, ten times each.
	tries := 3
	for _, arch := range archs {
		for _, other := range archs {
			all = append(all, service("ask-"+arch+"-"+other, "test/kit:1", func(x *spec.ServiceSpec) {
				x.Mode, x.Job, x.Args, x.Placement.Worker = spec.ModeJob, &spec.JobSpec{BackoffLimit: &tries}, []string{"get", "http://" + address[other].String() + ":8080/", "10"}, string(names[arch])
			}))
		}
	}
	s.do(app("fleet", all...))
	s.await("each has reached all through the overlay", func() bool {
		list, _ := s.Root.Instances(t.Context())
		asked := 0
		for _, i := range list {
			if strings.HasPrefix(string(i.Service.Service), "ask-") && i.State == skerry.Terminated && i.Exit != nil && i.Exit.Code == 0 {
				asked++
			}
		}
		return asked == len(archs)*len(archs)
	})
	reached("each has reached all through the overlay")
	sent := func() int {
		n := 0
		list, _ := s.Cluster.Instances(t.Context())
		for _, i := range list {
			if i.Service.App.Name == "foreign" {
				n++
			}
		}
		return n
	}
	var wrong []spec.ServiceSpec
	for _, arch := range archs[1:] {
		wrong = append(wrong, service("wrong-"+arch, "test/own:1", func(x *spec.ServiceSpec) {
			x.Args, x.Placement.Worker = []string{"answer", ":8080"}, string(names[arch])
		}))
	}
	s.do(app("foreign", wrong...))
	s.await("what is built for another is refused with the reason", func() bool {
		list, _ := s.Root.Instances(t.Context())
		told := 0
		for _, i := range list {
			if i.Service.App.Name == "foreign" && slices.ContainsFunc(i.Why, func(r wire.Reason) bool { return r.What == "arch" && strings.Contains(r.Text, goruntime.GOARCH) }) {
				told++
			}
		}
		return told == len(wrong)
	})
	reached("what is built for another is refused")
	if n := sent(); n > 0 {
		t.Errorf("%d instances were sent to workers that cannot run them", n)
	}
	for _, name := range []string{"fleet", "foreign"} {
		s.do(apps.Delete{Key: skerry.AppKey{Namespace: "default", Name: name}})
	}
	s.await("nothing is left", s.ready(0))
	reached("nothing is left")
}

// kits makes an image of the kit for some architectures.
func (s *site) kits(tag string, archs ...string) {
	s.t.Helper()
	for _, arch := range archs {
		bin := filepath.Join(s.t.TempDir(), "program")
		buildFor(s.t, arch, bin, "skerry.dev/skerry/examples/kit")
		if _, err := s.Root.Images.Store.Build(s.t.Context(), artifact.BuildOptions{Source: bin, Tag: "skerry.local/" + tag, Index: len(archs) > 1}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// wire makes what guests are connected to, and gives this machine an address there.
func connect(t *testing.T, host string) {
	t.Helper()
	must(t, "ip link add wire type bridge && ip addr add "+host+"/24 dev wire && ip link set wire up && ip link set lo up")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "wire").Run() })
}

// guest boots a machine of an architecture at the wire, whose worker has the architecture's name. Its console is in a file.
func (s *site) guest(arch, address string) (console string) {
	t := s.t
	t.Helper()
	board := boards[arch]
	for program, pkg := range map[string]string{board.program: board.pkg, "mmdebstrap": "mmdebstrap", foreign[arch].emulator: "qemu-user-static"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&testenv.Unsupported{What: "a guest of " + arch, Why: program + " is not installed; apt-get install " + pkg})
		}
	}
	sys := newSystem(t, arch)
	dir := t.TempDir()
	program := filepath.Join(dir, "skerry")
	buildFor(t, arch, program, "skerry.dev/skerry/cmd/skerry")
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := s.Cluster.Authority().CreateToken(t.Context(), auth.TokenOptions{Tier: wire.TierWorker, Name: arch})
	if err != nil {
		t.Fatal(err)
	}
	base, err := os.ReadFile(sys.root)
	if err != nil {
		t.Fatal(err)
	}
	var own cpio
	own.add("skerry", 0o100755, data)
	clock := fmt.Sprintf("busybox date -u -s @%d", time.Now().Unix())
	if s.time != "" {
		bin := filepath.Join(dir, "clock")
		buildFor(t, arch, bin, "skerry.dev/skerry/e2e/clock")
		program, err := os.ReadFile(bin)
		if err != nil {
			t.Fatal(err)
		}
		own.add("clock", 0o100755, program)
		clock = fmt.Sprintf("/clock once %[1]s\n/clock keep %[1]s &", s.time)
	}
	own.add("agent", 0o100644, fmt.Appendf(nil, `/usr/bin/ip link set lo up
/usr/bin/ip link set eth0 up
/usr/bin/ip addr add %s/24 dev eth0
%s
/skerry worker --cluster %s --name %s --join %s --address %s --http "" --ingress=false
`, address, clock, s.Cluster.LinkAddr(), arch, token, address))
	root := filepath.Join(dir, "root.cpio")
	if err := os.WriteFile(root, append(base, own.end()...), 0o600); err != nil {
		t.Fatal(err)
	}
	tap := "g" + arch
	must(t, "ip tuntap add "+tap+" mode tap && ip link set "+tap+" master wire up")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", tap).Run() })
	console = filepath.Join(dir, "console")
	// One thread for all processors, for the reason that package guest tells.
	machine := exec.Command(board.program, "-M", "virt", "-cpu", board.cpu, "-smp", "1", "-accel", "tcg,thread=single", "-m", "1536", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-kernel", sys.kernel, "-initrd", root, "-append", "console="+board.console+" panic=-1 quiet", "-netdev", "tap,id=net,ifname="+tap+",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=net,romfile=,mac="+mac(address), "-device", "virtio-rng-pci", "-serial", "file:"+console)
	// It is not to die with the thread that starts it: threads of the worker in this process end.
	var said strings.Builder
	machine.Stderr = &said
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = machine.Process.Kill()
		_ = machine.Wait()
		if text, _ := os.ReadFile(console); t.Failed() || testing.Verbose() {
			t.Logf("the console of %s:\n%s\n%s", arch, text[max(0, len(text)-20000):], said.String())
		}
	})
	return console
}

// mac is an address for a card that has this one of IPv4.
func mac(address string) string {
	a := netip.MustParseAddr(address).As4()
	return fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3])
}

func must(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}
