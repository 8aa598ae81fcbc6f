//go:build linux

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/pods"
	"skerry.dev/skerry/worker/pods/podstest"
)

// kubernetes is an API server, with what leads the program and stand-ins for kubelets to it.
type kubernetes struct {
	url, kubeconfig string
	client          *http.Client        // of somebody who may do everything
	real            *testenv.Kubernetes // with real kubelets; nil: they are stand-ins
}

// host is where the root's API listens, which is also the registry of the nodes' images.
func (k *kubernetes) host() string {
	if k.real != nil {
		return testenv.KubernetesHost
	}
	return "127.0.0.1"
}

// kubernetesNode is a node, whatever its kubelet is.
type kubernetesNode struct {
	name    string
	running func() int // containers
	kill    func()     // has all of them end by SIGKILL
	ready   func(is bool)
}

// Nodes of a small fake of Kubernetes are workers of a site.
func TestKubernetesNodes(t *testing.T) {
	testenv.KubernetesAddress(t)
	s := podstest.NewServer(t)
	kubernetesNodes(t, kubernetes{url: s.URL, kubeconfig: s.Kubeconfig(t.TempDir()), client: http.DefaultClient})
}

// endless is a service that prints where it runs, and ends well when it is asked to.
const endless = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web","image":%q,%s
"command":["/bin/sh","-c","echo hello from $SKERRY_WORKER; trap 'exit 0' TERM; while :; do sleep 0.05; done"],"terminationGrace":"5s",
"restart":{"backoff":"100ms"},"resources":{"cpu":0.1,"memory":"32Mi"}}]}}`

// kubernetesTest is a test of the nodes of one Kubernetes as workers.
type kubernetesTest struct {
	*processes
	t       *testing.T
	real    bool // kubelets
	site    *api.Client
	root    *api.Client
	program *role
	nodes   []kubernetesNode
	admin   *podstest.Kubelet // asks the API server
	shelf   *podstest.Provisioner
}

// kubernetesNodes is what must hold of every API server.
func kubernetesNodes(t *testing.T, k kubernetes) {
	n := newKubernetesTest(t, k)
	n.apply("hello", "test/shell:1", "")
	var first wire.Instance
	n.await("it runs", func() bool { return n.instance("hello", &first) && first.State == skerry.Running })
	n.printed(first)
	n.measured()
	n.restarted(first)
	n.killed(first)
	n.refused()
	n.reached()
	n.accompanied()
	n.unprepared()
	n.hooks()
	n.stored()
	if n.real {
		n.entered()
		n.ended()
	}
	n.away(first)
	if err := n.root.DeleteApp(t.Context(), skerry.AppKey{Namespace: "default", Name: "hello"}); err != nil {
		t.Fatal(err)
	}
	n.await("nothing of it is left", func() bool {
		var secrets struct {
			Items []podstest.Object `json:"items"`
		}
		n.admin.Do("GET", "/api/v1/namespaces/skerry/secrets", nil, &secrets)
		left := 0
		for _, s := range secrets.Items {
			if strings.HasPrefix(podstest.Text(s, "metadata", "name"), "web-") {
				left++
			}
		}
		return n.running() == 0 && left == 0
	})
}

// node begins one. kit is what a stand-in runs for its image.
func (k *kubernetes) node(t *testing.T, name, kit string, number int) kubernetesNode {
	if k.real == nil {
		it := &podstest.Kubelet{Name: name, Server: k.url, Client: k.client, Address: testenv.KubernetesHost,
			Programs: map[string]string{"test/shell": "/bin/sh", "test/kit": kit}}
		it.Start(t)
		return kubernetesNode{name, it.Running, func() { it.Kill(syscall.SIGKILL) }, it.Ready}
	}
	it := k.real.NewNode(t, "..", name, k.host()+":7480", number)
	return kubernetesNode{name, func() int { return len(it.Mains()) }, func() {
		for _, pid := range it.Mains() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}, func(is bool) {
		if is {
			it.Start()
		} else {
			it.Stop()
		}
	}}
}

// registry makes the root's registry that of the nodes: kubelets pull from it as its admin, by a secret of the namespace.
func (n *kubernetesTest) registry(k *kubernetes) []string {
	n.t.Helper()
	at := k.host() + ":7480"
	auths := fmt.Appendf(nil, `{"auths":{%q:{"username":"admin","password":%q}}}`, at, password(n.t, n.data("root")))
	code, text := n.admin.Do("POST", "/api/v1/namespaces/skerry/secrets", podstest.Object{"type": "kubernetes.io/dockerconfigjson",
		"metadata": podstest.Object{"name": "pull"}, "data": podstest.Object{".dockerconfigjson": auths}}, nil)
	if code != http.StatusCreated {
		n.t.Fatalf("make the secret of the registry: status %d: %s", code, text)
	}
	return []string{"--registry", at, "--pull-secret", "pull"}
}

func newKubernetesTest(t *testing.T, k kubernetes) *kubernetesTest {
	n := &kubernetesTest{processes: newProcesses(t), t: t, real: k.real != nil, admin: &podstest.Kubelet{Server: k.url, Client: k.client}}
	n.provisioner(&k)
	kit := filepath.Join(n.dir, "kit")
	testenv.Build(t, kit, "skerry.dev/skerry/examples/kit")
	for i, name := range []string{"n1", "node.two"} {
		n.nodes = append(n.nodes, k.node(t, name, kit, i+1))
	}
	n.start(&role{name: "root", args: []string{"root", "--data", n.data("root"), "--link", "127.0.0.1:7443", "--api", k.host() + ":7480"}})
	n.root = login(t, "https://"+k.host()+":7480", n.data("root"))
	t.Cleanup(func() { n.root.Close() })
	token := joinToken(t, "https://"+k.host()+":7480", n.data("root"), wire.TierCluster)
	n.start(&role{name: "cluster", args: []string{"cluster", "--name", "harbour", "--data", n.data("cluster"), "--root", "127.0.0.1:7443",
		"--join", token, "--link", "127.0.0.1:7444", "--api", "127.0.0.1:7481", "--admission", n.admission()}})
	n.site = login(t, "https://127.0.0.1:7481", n.data("cluster"))
	t.Cleanup(func() { n.site.Close() })
	tokens := ""
	for range n.nodes {
		tokens += joinToken(t, "https://127.0.0.1:7481", n.data("cluster"), wire.TierWorker) + "\n"
	}
	if err := os.WriteFile(n.data("tokens"), []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(n.dir, "skerry-kubernetes")
	testenv.Build(t, binary, "skerry.dev/skerry/cmd/skerry-kubernetes")
	n.program = &role{name: "kubernetes", args: []string{"--data", n.data("kubernetes"), "--cluster", "127.0.0.1:7444", "--tokens",
		n.data("tokens"),
		"--kubeconfig", k.kubeconfig, "--namespace", "skerry", "--unschedulable-after", "1s"}}
	if k.real != nil {
		n.program.args = append(n.program.args, n.registry(&k)...)
	}
	n.all = append(n.all, n.program)
	n.run()
	n.await("both nodes are workers", func() bool { return len(n.workers()) == 2 })
	busybox, err := exec.LookPath("busybox")
	if err != nil { // for a stand-in, any program will do
		busybox = binary
	}
	pushShell(t, n.root, n.data("shell"), "test/shell:1", busybox)
	if err := os.MkdirAll(n.data("other"), 0o755); err != nil {
		t.Fatal(err)
	}
	pushFile(t, n.root, n.data("other"), "test/other:1", binary)
	pushFile(t, n.root, n.data("other"), "test/kit:1", kit)
	n.await("the root sees them", func() bool {
		list, err := n.root.Clusters(t.Context())
		return err == nil && len(list) == 1 && len(list[0].Report.Classes) > 0
	})
	return n
}

// run starts the program.
func (n *kubernetesTest) run() {
	n.t.Helper()
	n.program.start(n.t, filepath.Join(n.dir, "skerry-kubernetes"), n.log)
}

func (n *kubernetesTest) await(what string, ok func() bool) {
	n.t.Helper()
	defer func() {
		if n.t.Failed() {
			text, _ := os.ReadFile(n.log.Name())
			n.t.Logf("log: %s", text[max(0, len(text)-12000):])
			for _, p := range n.pods() {
				n.t.Logf("pod %v: %v", p["metadata"], p["status"])
			}
		}
	}()
	await(n.t, what, ok)
}

func (n *kubernetesTest) pods() []podstest.Object {
	var list struct {
		Items []podstest.Object `json:"items"`
	}
	n.admin.Do("GET", "/api/v1/pods", nil, &list)
	return list.Items
}

// workers are the names of those that are connected.
func (n *kubernetesTest) workers() (out []string) {
	list, err := n.site.Workers(n.t.Context())
	if err != nil {
		return nil
	}
	for _, w := range list {
		if w.Connected && w.Facts != nil {
			out = append(out, string(w.Name))
		}
	}
	return out
}

func (n *kubernetesTest) apply(name, image, more string) {
	n.t.Helper()
	if _, err := n.root.Apply(n.t.Context(), fmt.Appendf(nil, endless, name, image, more), api.ApplyOptions{}); err != nil {
		n.t.Fatal(err)
	}
}

// instance gives the one of an application at the site.
func (n *kubernetesTest) instance(app string, to *wire.Instance) bool {
	list, err := n.site.Instances(n.t.Context(), api.InstanceFilter{App: app, Namespace: "default"})
	if err != nil || len(list) != 1 {
		return false
	}
	*to = list[0]
	return true
}

// running counts the processes of all nodes.
func (n *kubernetesTest) running() (sum int) {
	for _, k := range n.nodes {
		sum += k.running()
	}
	return sum
}

// printed reads what an instance prints, through root and site.
func (n *kubernetesTest) printed(i wire.Instance) {
	n.t.Helper()
	want := "hello from " + string(i.Worker)
	n.await("its log is there", func() bool {
		got := ""
		err := n.root.Logs(n.t.Context(), i.ID, api.LogOptions{}, func(l api.LogLine) error { got = l.Line; return nil })
		return err == nil && got == want
	})
	ctx, cancel := context.WithCancel(n.t.Context())
	defer cancel()
	got := ""
	_ = n.root.Logs(ctx, i.ID, api.LogOptions{Follow: true}, func(l api.LogLine) error {
		got = l.Line
		cancel()
		return nil
	})
	if got != want {
		n.t.Errorf("the followed log has %q, want %q", got, want)
	}
}

// restarted has the program start anew: the same pod runs on, and is known.
func (n *kubernetesTest) restarted(i wire.Instance) {
	n.t.Helper()
	n.program.kill()
	n.await("the site misses its workers", func() bool { return len(n.workers()) == 0 })
	n.run()
	n.await("the nodes are back", func() bool { return len(n.workers()) == 2 })
	var now wire.Instance
	n.await("it runs on", func() bool {
		return n.instance("hello", &now) && now.State == skerry.Running && n.running() == 1
	})
	if now.Worker == i.Worker && (now.Restarts != 0 || !now.StartedAt.Equal(i.StartedAt)) {
		n.t.Errorf("after the program's restart the instance has %d restarts and runs since %s, want 0 and %s", now.Restarts, now.StartedAt,
			i.StartedAt)
	}
}

// killed has the process of a pod die: another pod takes its place.
func (n *kubernetesTest) killed(i wire.Instance) {
	n.t.Helper()
	for _, k := range n.nodes {
		k.kill()
	}
	var now wire.Instance
	n.await("it was started again", func() bool {
		return n.instance("hello", &now) && now.State == skerry.Running && now.Restarts == 1 && n.running() == 1
	})
	if now.Exit == nil || now.Exit.Code != 137 || now.Exit.Signal != "SIGKILL" {
		n.t.Errorf("the exit of the killed instance is %+v, want 137 and SIGKILL", now.Exit)
	}
}

// refused has what cannot be done: an image that is not there, and what nodes do not offer.
func (n *kubernetesTest) refused() {
	n.t.Helper()
	var i wire.Instance
	n.apply("missing", "test/other:1", "")
	want := "ImagePullBackOff: Back-off pulling image"
	if n.real {
		want = "exec: \"/bin/sh\"" // it can be pulled, and has no shell
	}
	n.await("the image is of no use", func() bool { return n.instance("missing", &i) && strings.Contains(i.Reason, want) })
	if err := n.root.DeleteApp(n.t.Context(), skerry.AppKey{Namespace: "default", Name: "missing"}); err != nil {
		n.t.Fatal(err)
	}
	n.applies(sampled)
	n.await("a service whose volume is to be copied finds no place", func() bool {
		list, err := n.root.Instances(n.t.Context(), api.InstanceFilter{App: "first", Namespace: "default"})
		return err == nil && strings.Contains(fmt.Sprintf("%+v", list), "ability")
	})
	if err := n.root.DeleteApp(n.t.Context(), skerry.AppKey{Namespace: "default", Name: "first"}); err != nil {
		n.t.Fatal(err)
	}
}

// pair is a service on one node, and one on the other that calls it.
const pair = `{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":"pair"},"spec":{"services":[
{"name":"back","image":"test/kit:1","command":["/kit","serve",":20555","/served"],"ports":[{"port":20555,"hostPort":20555}],
"config":[{"path":"/served/page","content":"a page"}],"secrets":[{"name":"word","path":"/served/secret"}],
"probes":{"readiness":{"http":{"path":"/page","port":20555},"interval":"1s"}},
"placement":{"labels":{"kubernetes.io/hostname":"n1"}},"resources":{"cpu":0.1,"memory":"32Mi"}},
{"name":"front","image":"test/kit:1","command":["/kit","call","back","/secret/word"],"links":[{"service":"back"}],
"placement":{"labels":{"kubernetes.io/hostname":"node.two"}},"resources":{"cpu":0.1,"memory":"32Mi"}}]}}`

// reached has an instance on one node call another by the host port that its file of endpoints names; what it gets is a file of a secret.
// The same port is reached through root and site.
func (n *kubernetesTest) reached() {
	n.t.Helper()
	ctx := n.t.Context()
	if _, err := n.root.PutSecret(ctx, "default", "word", false, spec.SecretValue{"word": []byte("open sesame")}); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.root.Apply(ctx, []byte(pair), api.ApplyOptions{}); err != nil {
		n.t.Fatal(err)
	}
	found := map[string]wire.Instance{}
	n.await("both run", func() bool {
		list, err := n.site.Instances(ctx, api.InstanceFilter{App: "pair", Namespace: "default"})
		for _, i := range list {
			if i.State == skerry.Running {
				found[i.Service.Service] = i
			}
		}
		return err == nil && len(found) == 2
	})
	n.await("one has called the other", func() bool {
		got := ""
		err := n.root.Logs(ctx, found["front"].ID, api.LogOptions{}, func(l api.LogLine) error { got = l.Line; return nil })
		return err == nil && got == "open sesame"
	})
	conn, err := n.root.PortForward(ctx, found["back"].ID, 20555)
	if err != nil {
		n.t.Fatalf("port-forward: %v", err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /page HTTP/1.0\r\n\r\n")
	if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "\r\n\r\na page") {
		n.t.Errorf("through the forwarded port came %q (%v), want a page", got, err)
	}
	if err := n.root.DeleteApp(ctx, skerry.AppKey{Namespace: "default", Name: "pair"}); err != nil {
		n.t.Fatal(err)
	}
	n.await("both have gone", func() bool { return n.running() == 1 })
}

// away has the node of the instance out of touch: its worker is lost, another one takes over, and when the node is back one copy stays.
func (n *kubernetesTest) away(wire.Instance) {
	n.t.Helper()
	var i, now wire.Instance
	if !n.instance("hello", &i) {
		n.t.Fatal("the instance is not known any more")
	}
	var node kubernetesNode
	for _, k := range n.nodes {
		if pods.WorkerName(k.name) == string(i.Worker) {
			node = k
		}
	}
	node.ready(false)
	n.await("it runs on the other node", func() bool {
		return n.instance("hello", &now) && now.Worker != i.Worker && now.State == skerry.Running
	})
	if got := n.running(); got != 2 {
		n.t.Errorf("%d processes run while a node is out of touch, want 2: nothing ends there", got)
	}
	node.ready(true)
	n.await("one copy stays", func() bool { return len(n.workers()) == 2 && n.running() == 1 })
}
