package testenv

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// KubernetesHost is where an API server with real kubelets listens, and what else their nodes are to reach.
const KubernetesHost = "10.78.0.1"

// KubernetesNode is a node with a real kubelet and containerd, in namespaces of its own: of mounts, so that it has /run, /var/lib and
// /var/log for itself, of cgroups, of processes, so that all of them end with it, and of a network, with a cable to that of the test. Its
// pods have addresses of their own (10.79.N.0/24), and host ports by the CNI plugin portmap.
type KubernetesNode struct {
	Name, Address string

	t      testing.TB
	k      *Kubernetes
	dir    string
	cgroup string
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
}

// authority signs certificates of a test.
type authority struct {
	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, dir string) *authority {
	a := &authority{t: t, dir: dir}
	a.cert, a.key = a.issue("ca", nil, &x509.Certificate{Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	return a
}

// issue writes NAME.crt and NAME.key.
func (a *authority) issue(name string, parent *authority, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	by, with := template, key
	if parent != nil {
		by, with = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by, &key.PublicKey, with)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	a.write(name+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
	return cert, key
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name string, data []byte) {
	a.t.Helper()
	if err := os.WriteFile(a.path(name), data, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// needNodes skips where a node cannot be had.
func needNodes(t testing.TB) {
	t.Helper()
	for _, program := range []string{"containerd", "ctr", "runc", "iptables", "busybox", "unshare", "/usr/lib/cni/bridge",
		"/usr/lib/cni/portmap"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(&Unsupported{What: "a node of Kubernetes", Why: "there is no " + program +
				"; apt-get install containerd runc containernetworking-plugins iptables busybox-static"})
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	controllers := []string{}
	for line := range strings.Lines(string(mounts)) {
		if _, fs, ok := strings.Cut(strings.TrimSpace(line), " - cgroup "); ok {
			controllers = append(controllers, strings.Split(fs[strings.LastIndexByte(fs, ' ')+1:], ",")...)
		}
	}
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"} {
		if !slices.Contains(controllers, c) {
			t.Skip(&Unsupported{What: "a node of Kubernetes", Why: "the cgroup controller " + c + " is not mounted as version 1"})
		}
	}
}

// KubernetesAddress gives this network namespace the address KubernetesHost until the test ends.
func KubernetesAddress(t testing.TB) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := netlink.ParseAddr(KubernetesHost + "/32")
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.AddrDel(lo, addr) })
}

// NewNode begins a node, the number-th, and returns when its kubelet says that it is ready. Registry is a registry at which images are
// pulled, whose certificate nobody checks. It goes when the test ends.
func (k *Kubernetes) NewNode(t testing.TB, root, name, registry string, number int) *KubernetesNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "node-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	n := &KubernetesNode{Name: name, Address: fmt.Sprintf("10.78.%d.2", number), t: t, k: k, dir: dir,
		cgroup: fmt.Sprintf("skerry-node-%d-%d", os.Getpid(), number)}
	n.configure(registry, number)
	n.begin(root, number)
	n.Start()
	return n
}

func (n *KubernetesNode) write(name, text string) {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

func (n *KubernetesNode) configure(registry string, number int) {
	n.t.Helper()
	n.k.authority.issue(n.Name, n.k.authority, &x509.Certificate{Subject: pkix.Name{CommonName: n.Name},
		IPAddresses: []net.IP{net.ParseIP(n.Address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	n.write("name", n.Name)
	n.write("kubeconfig", string(n.k.kubeconfig()))
	n.write("containerd.toml", strings.ReplaceAll(`version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "skerry.test/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "DIR/cni"
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "DIR/registries"
`, "DIR", n.dir))
	n.write("registries/"+registry+"/hosts.toml", fmt.Sprintf("server = %[1]q\n[host.%[1]q]\nskip_verify = true\n",
		"https://"+registry))
	n.write("cni/10-test.conflist", fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "test", "plugins": [
{"type": "bridge", "bridge": "pods", "isGateway": true, "ipMasq": false, "hairpinMode": true,
 "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "10.79.%d.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
{"type": "portmap", "capabilities": {"portMappings": true}}]}`, number))
	config, _ := json.Marshal(map[string]any{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"authentication": map[string]any{"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": n.k.authority.path("ca.crt")}},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   n.k.authority.path(n.Name + ".crt"), "tlsPrivateKeyFile": n.k.authority.path(n.Name + ".key"),
		"cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false, "makeIPTablesUtilChains": false, "resolvConf": "",
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock", "volumePluginDir": "/var/lib/kubelet/volume-plugins",
		"evictionHard":  map[string]string{"memory.available": "10Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
		"syncFrequency": "2s", "imageGCHighThresholdPercent": 100, "nodeStatusUpdateFrequency": "1s", "staticPodPath": ""})
	n.write("kubelet.yaml", string(config))
	if err := os.Symlink(filepath.Join(n.k.programs, "kubelet"), filepath.Join(n.dir, "kubelet")); err != nil {
		n.t.Fatal(err)
	}
	n.pauseImage()
}

// holdTime is for how many seconds the process sleeps that holds the namespaces of a pod.
const holdTime = "1000000007"

// pauseImage writes the image whose process holds the namespaces of a pod: busybox, asleep.
func (n *KubernetesNode) pauseImage() {
	n.t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		n.t.Fatal(err)
	}
	busybox, err := os.ReadFile(path)
	if err != nil {
		n.t.Fatal(err)
	}
	archive := func(names []string, bodies ...[]byte) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i, name := range names {
			_ = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(bodies[i]))})
			_, _ = w.Write(bodies[i])
		}
		_ = w.Close()
		return b.Bytes()
	}
	layer := archive([]string{"busybox"}, busybox)
	sum := sha256.Sum256(layer)
	config, _ := json.Marshal(map[string]any{"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/busybox", "sleep", holdTime}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}}})
	manifest, _ := json.Marshal([]any{map[string]any{"Config": "config.json", "RepoTags": []string{"skerry.test/pause:1"},
		"Layers": []string{"layer.tar"}}})
	n.write("pause.tar", string(archive([]string{"layer.tar", "config.json", "manifest.json"}, layer, config, manifest)))
}

// begin starts all but the kubelet.
func (n *KubernetesNode) begin(root string, number int) {
	n.t.Helper()
	script, err := filepath.Abs(filepath.Join(root, "scripts/kubernetes/node"))
	if err != nil {
		n.t.Fatal(err)
	}
	here := fmt.Sprintf("10.78.%d.1", number)
	n.cmd = exec.Command(script, n.dir, n.cgroup, n.Address, here)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC}
	var words bytes.Buffer
	n.cmd.Stderr = &words
	n.cmd.WaitDelay = time.Second
	if n.in, err = n.cmd.StdinPipe(); err != nil {
		n.t.Fatal(err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.out = bufio.NewReader(out)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("node%d", number)}, PeerName: "eth0",
		PeerNamespace: netlink.NsPid(n.cmd.Process.Pid)}
	n.t.Cleanup(func() {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait() // its namespaces of processes and mounts end before
		if l, err := netlink.LinkByName(link.Name); err == nil {
			_ = netlink.LinkDel(l)
		}
		n.removeCgroups()
		if n.t.Failed() {
			n.t.Logf("node %s said: %s", n.Name, words.String())
			for _, name := range []string{"kubelet.log", "containerd.log"} {
				text, _ := os.ReadFile(filepath.Join(n.dir, name))
				n.t.Logf("%s of node %s: %s", name, n.Name, text[max(0, len(text)-20000):])
			}
		}
	})
	if err := netlink.LinkAdd(link); err != nil {
		n.t.Fatal(err)
	}
	l, err := netlink.LinkByName(link.Name)
	if err != nil {
		n.t.Fatal(err)
	}
	addr, _ := netlink.ParseAddr(here + "/30")
	if err := netlink.AddrAdd(l, addr); err != nil {
		n.t.Fatal(err)
	}
	if err := netlink.LinkSetUp(l); err != nil {
		n.t.Fatal(err)
	}
	n.await("ready")
	_, pods, _ := net.ParseCIDR(fmt.Sprintf("10.79.%d.0/24", number))
	if err := netlink.RouteAdd(&netlink.Route{Dst: pods, Gw: net.ParseIP(n.Address)}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *KubernetesNode) await(word string) {
	n.t.Helper()
	line, err := n.out.ReadString('\n')
	if err != nil || strings.TrimSpace(line) != word {
		n.t.Fatalf("node %s says %q (%v), want %q", n.Name, line, err, word)
	}
}

func (n *KubernetesNode) say(word string) {
	n.t.Helper()
	if _, err := io.WriteString(n.in, word+"\n"); err != nil {
		n.t.Fatal(err)
	}
	n.await(word)
}

// Start starts the kubelet, and returns when the API server has the node as ready.
func (n *KubernetesNode) Start() {
	n.t.Helper()
	n.say("start")
	for began := time.Now(); !n.ready(); Pause(began) {
		if time.Since(began) > 2*time.Minute {
			n.t.Fatalf("node %s is not ready", n.Name)
		}
	}
	// Kubernetes marks new nodes until its controllers, which do not run here, have seen them.
	n.k.Do("PATCH", "/api/v1/nodes/"+n.Name, map[string]any{"spec": map[string]any{"taints": nil}})
}

func (n *KubernetesNode) ready() bool {
	if !n.k.has("/api/v1/nodes/" + n.Name) {
		return false
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	data, _ := json.Marshal(n.k.Do("GET", "/api/v1/nodes/"+n.Name, nil))
	_ = json.Unmarshal(data, &node)
	return slices.ContainsFunc(node.Status.Conditions, func(c struct{ Type, Status string }) bool {
		return c.Type == "Ready" && c.Status == "True"
	})
}

// Stop kills the kubelet, and marks the node as Kubernetes' controller does after a while.
func (n *KubernetesNode) Stop() {
	n.t.Helper()
	n.say("stop")
	n.k.Do("PATCH", "/api/v1/nodes/"+n.Name+"/status", map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}}}})
}

// Mains are the first processes of containers, without those that hold the namespaces of pods.
func (n *KubernetesNode) Mains() (out []int) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range list {
		cgroup, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if !strings.Contains(string(cgroup), "/"+n.cgroup+"/") {
			continue
		}
		status, _ := os.ReadFile(filepath.Join(dir, "status"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		first := false
		for l := range strings.Lines(string(status)) {
			if pids, ok := strings.CutPrefix(l, "NSpid:"); ok {
				f := strings.Fields(pids)
				first = len(f) > 0 && f[len(f)-1] == "1"
			}
		}
		if first && len(line) > 0 && !bytes.Contains(line, []byte(holdTime)) && !bytes.HasPrefix(line, []byte("runc")) {
			if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
				out = append(out, pid)
			}
		}
	}
	return out
}

// removeCgroups removes what a node has left of its cgroups.
func (n *KubernetesNode) removeCgroups() {
	tops, _ := filepath.Glob("/sys/fs/cgroup/*/" + n.cgroup)
	for _, top := range tops {
		if err := RemoveCgroup(top, true); err != nil {
			n.t.Error(err)
		}
	}
}
