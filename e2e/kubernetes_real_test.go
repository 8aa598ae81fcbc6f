//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/pods/podstest"
)

// The same with a real API server, etcd and scheduler, and the rights of the manifest that is shipped. The kubelets are stand-ins.
func TestRealKubernetesNodes(t *testing.T) {
	testenv.Long(t, "TestKubernetesNodes")
	kubernetesNodes(t, realKubernetes(t, false))
}

// The same with real kubelets, too, which have containerd run real images.
func TestRealKubelets(t *testing.T) {
	testenv.Long(t, "TestKubernetesNodes")
	kubernetesNodes(t, realKubernetes(t, true))
}

func realKubernetes(t *testing.T, kubelets bool) kubernetes {
	t.Helper()
	k := testenv.NewKubernetes(t, "..", kubelets)
	const namespace = "/api/v1/namespaces/skerry"
	const rbac = "/apis/rbac.authorization.k8s.io/v1"
	k.Apply("../packaging/kubernetes/skerry-kubernetes.yaml", map[string]string{"Namespace": "/api/v1/namespaces",
		"ServiceAccount": namespace + "/serviceaccounts", "ClusterRole": rbac + "/clusterroles",
		"ClusterRoleBinding": rbac + "/clusterrolebindings", "Role": rbac + "/namespaces/skerry/roles",
		"RoleBinding": rbac + "/namespaces/skerry/rolebindings", "Secret": namespace + "/secrets",
		"PersistentVolumeClaim": namespace + "/persistentvolumeclaims", "Deployment": "/apis/apps/v1/namespaces/skerry/deployments"})
	// What the manifest leaves to the operator.
	k.Do(http.MethodPost, rbac+"/clusterroles", map[string]any{"metadata": map[string]any{"name": "skerry-figures"}, "rules": []any{
		map[string]any{"apiGroups": []string{""}, "resources": []string{"nodes/proxy"}, "verbs": []string{"get"}}}})
	k.Do(http.MethodPost, rbac+"/clusterrolebindings", map[string]any{"metadata": map[string]any{"name": "skerry-figures"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "skerry-figures"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "skerry-kubernetes", "namespace": "skerry"}}})
	// That is what a controller does, and none runs here.
	k.Do(http.MethodPost, namespace+"/serviceaccounts", map[string]any{"metadata": map[string]any{"name": "default"}})
	answer := k.Do(http.MethodPost, namespace+"/serviceaccounts/skerry-kubernetes/token", map[string]any{"spec": map[string]any{}})
	made := kubernetes{url: k.URL, client: k.Client,
		kubeconfig: podstest.Kubeconfig(t, t.TempDir(), k.URL, k.CA, podstest.Text(answer, "status", "token"))}
	if kubelets {
		made.real = k
	}
	return made
}

// entered runs commands in an instance: what they print is told apart, their status arrives, and they see the end of what they read.
func (n *kubernetesTest) entered() {
	n.t.Helper()
	var i wire.Instance
	if !n.instance("hello", &i) {
		n.t.Fatal("the instance is not known any more")
	}
	for _, c := range []struct{ command, in, out, err, status string }{
		{"/bin/sh -c 'echo out; echo err >&2; exit 7'", "", "out\n", "err\n", "7 "},
		{"/bin/cat", "typed", "typed", "", "0 "},
		{"/bin/nope", "", "", "", "126 Kubernetes cannot run it"},
	} {
		command := strings.Fields(c.command)
		if shell, script, ok := strings.Cut(c.command, " -c "); ok {
			command = []string{shell, "-c", strings.Trim(script, "'")}
		}
		out, errOut, status := n.command(i.ID, "", command, c.in)
		if out != c.out || errOut != c.err || !strings.HasPrefix(status, c.status) {
			n.t.Errorf("%s printed %q and %q and ended with %q, want %q, %q, %q", c.command, out, errOut, status, c.out, c.err, c.status)
		}
	}
}

// command runs one in a container of an instance, through root and site.
func (n *kubernetesTest) command(id skerry.InstanceID, container string, command []string, in string) (out, errOut, status string) {
	n.t.Helper()
	conn, closer, err := n.root.Exec(n.t.Context(), id, api.ExecOptions{Command: command, Container: container, Stdin: in != ""})
	if err != nil {
		n.t.Fatalf("exec %q: %v", command, err)
	}
	defer closer.Close()
	if in != "" {
		if err := conn.Write(execstream.Stdin, []byte(in)); err != nil {
			n.t.Fatalf("write to %q: %v", command, err)
		}
		if err := conn.Write(execstream.StdinEOF, nil); err != nil {
			n.t.Fatalf("end the input of %q: %v", command, err)
		}
	}
	for {
		kind, data, err := conn.Read()
		if err != nil {
			n.t.Fatalf("read from %q: %v", command, err)
		}
		switch kind {
		case execstream.Stdout:
			out += string(data)
		case execstream.Stderr:
			errOut += string(data)
		case execstream.Exit:
			var r execstream.Result
			if err := json.Unmarshal(data, &r); err != nil {
				n.t.Fatalf("the end of %q: %v", command, err)
			}
			return out, errOut, fmt.Sprint(r.Code, " ", r.Error)
		}
	}
}

// ended has instances end by themselves, and by their limit of memory.
func (n *kubernetesTest) ended() {
	n.t.Helper()
	for name, c := range map[string]struct {
		script string
		code   int
		oom    bool
	}{
		"fails":  {"exit 3", 3, false},
		"greedy": {"x=aaaaaaaaaaaaaaaa; while :; do x=$x$x; done", 137, true},
	} {
		text := fmt.Sprintf(`{"apiVersion":"skerry/v1","kind":"Application","metadata":{"name":%q},"spec":{"services":[{"name":"web",
"image":"test/shell:1","command":["/bin/sh","-c",%q],"resources":{"cpu":0.1,"memory":"32Mi"}}]}}`, name, c.script)
		if _, err := n.root.Apply(n.t.Context(), []byte(text), api.ApplyOptions{}); err != nil {
			n.t.Fatal(err)
		}
		var i wire.Instance
		n.await(name+" has ended", func() bool { return n.instance(name, &i) && i.Exit != nil })
		if i.Exit.Code != c.code || i.Exit.OOMKilled != c.oom {
			n.t.Errorf("the exit of %s is %+v, want code %d, and killed for memory: %v", name, i.Exit, c.code, c.oom)
		}
		if err := n.root.DeleteApp(n.t.Context(), skerry.AppKey{Namespace: "default", Name: name}); err != nil {
			n.t.Fatal(err)
		}
		n.await(name+" has gone", func() bool { return !n.instance(name, &i) })
	}
}
