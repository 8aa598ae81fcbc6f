package pods

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// assignment reads a service into an assignment for a pod.
func assignment(t *testing.T, service string) *spec.Assignment {
	t.Helper()
	a := &spec.Assignment{ID: "web-1", Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"},
		Level: spec.LevelRestricted, Runtime: spec.RuntimeOCI}
	if err := json.Unmarshal([]byte(service), &a.Spec); err != nil {
		t.Fatal(err)
	}
	return a
}

func nodeOf(t *testing.T, text string) *Node {
	t.Helper()
	var n Node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		t.Fatal(err)
	}
	return &n
}

const aNode = `{"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"eu-1a","kubernetes.io/arch":"arm64"}},
"spec":{"taints":[{"key":"edge","value":"yes","effect":"NoSchedule"},{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"}]},
"status":{"allocatable":{"cpu":"3500m","memory":"8Gi","ephemeral-storage":"10G","pods":"110"},
"addresses":[{"type":"InternalIP","address":"10.0.0.7"}],
"conditions":[{"type":"Ready","status":"True"}],"nodeInfo":{"operatingSystem":"linux"}}}`

// A service becomes a pod: what matters of it is there, and in Kubernetes' words.
func TestPod(t *testing.T) {
	a := assignment(t, `{"name":"web","image":"my/app:1","command":["/app","$HOME","$(WHERE)"],
"env":{"A":"cost $5"},"envFields":{"WHERE":"worker","IP":"address"},
"user":"1000:2000","ports":[{"name":"http","port":8080,"hostPort":-1}],"resources":{"cpu":0.5,"memory":"64Mi","limits":{"cpu":1}},
"config":[{"path":"/etc/app.conf","content":"x","mode":"0440"}],"volumes":[{"name":"tmp","empty":{"memory":true,"size":"1Mi"}}],
"mounts":[{"volume":"tmp","path":"/tmp"}],
"probes":{"readiness":{"http":{"path":"/ok","port":8080},"interval":"1500ms","failures":3,"successes":1}},
"placement":{"tolerations":[{"key":"edge"}]},"terminationGrace":"1500ms"}`)
	a.Digest = map[string]string{"my/app:1": "docker.io/my/app@sha256:" + strings.Repeat("a", 64)}
	style := Style{Namespace: "skerry", Site: "s", Registry: "root.example.com:7480"}
	p, err := style.pod(a, 2, nodeOf(t, aNode), "n1", []wire.PortBinding{{Name: "http", Port: 8080, HostPort: 20000, Protocol: "tcp"}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	got := string(data)
	for _, want := range []string{`"restartPolicy":"Never"`, `"terminationGracePeriodSeconds":2`, `"automountServiceAccountToken":false`,
		`"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]`,
		`"tolerations":[{"key":"edge","operator":"Equal","value":"yes","effect":"NoSchedule"}]`,
		`"image":"root.example.com:7480/my/app@sha256:` + strings.Repeat("a", 64) + `"`, `"command":["/app","$$HOME","n1"]`,
		`{"name":"A","value":"cost $$5"}`, `{"name":"IP","valueFrom":{"fieldRef":{"fieldPath":"status.podIP"}}}`,
		`"containerPort":8080,"hostPort":20000,"protocol":"TCP"`, `"requests":{"cpu":"500m","ephemeral-storage"`, `"limits":{"cpu":"1000m"`,
		`"runAsUser":1000,"runAsGroup":2000`, `"capabilities":{"drop":["ALL"]}`, `"seccompProfile":{"type":"RuntimeDefault"}`,
		`"allowPrivilegeEscalation":false`, `"mountPath":"/etc/app.conf","subPath":"app.conf","readOnly":true`,
		`"medium":"Memory","sizeLimit":"1048576"`,
		`"failureThreshold":3`, `"periodSeconds":2`, `"skerry.dev/attempt":"2"`, `"skerry.dev/instance":"web-1"`} {
		if !strings.Contains(got, want) {
			t.Errorf("the pod has no %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "node.kubernetes.io") {
		t.Errorf("the pod tolerates what Kubernetes marks a node with that is not ready:\n%s", got)
	}
	b := *a
	b.Fence.Sequence++
	if podName(a, "n1", 1) == podName(&b, "n1", 1) || podName(a, "n1", 1) == podName(a, "n2", 1) || podName(a, "n1", 1) == podName(a, "n1",
		2) {
		t.Errorf("pods of another token, worker or attempt have the same name %s", podName(a, "n1", 1))
	}
}

// What no pod can do is refused by name, whatever a site of before sends.
func TestRefuse(t *testing.T) {
	for service, want := range map[string]string{
		`"runtime":"native"`:                                "",
		`"init":[{"name":"a","image":"x"}]`:                 "",
		`"sidecars":[{"name":"a","image":"x"}]`:             "",
		`"sidecars":[{"name":"a"}]`:                         "unsupported: image: ",
		`"init":[{"name":"a","image":"x","user":"www"}]`:    "unsupported: user www: ",
		`"volumes":[{"name":"d","local":{}}]`:               "",
		`"volumes":[{"name":"d","host":{"path":"/d"}}]`:     "unsupported: volume d: ",
		`"stopSignal":"SIGUSR1"`:                            "unsupported: stopSignal SIGUSR1: ",
		`"stopSignal":"TERM"`:                               "",
		`"user":"www-data"`:                                 "unsupported: user www-data: ",
		`"onDisconnect":{"stopAfter":"30s"}`:                "unsupported: onDisconnect stopAfter: ",
		`"hostname":"a.b"`:                                  "unsupported: hostname: ",
		`"resources":{"exclusiveCPUs":1}`:                   "unsupported: resources: ",
		`"ports":[{"port":8080,"servicePort":80}]`:          "unsupported: servicePort: ",
		`"sysctls":{"net.core.somaxconn":"9"}`:              "unsupported: sysctls: ",
		`"preStop":{"exec":{"command":["/bin/true"]}}`:      "",
		`"extraHosts":[{"address":"::1","names":["x"]}]`:    "",
		`"envSecrets":{"A":"s/f"},"secrets":[{"name":"s"}]`: "",
	} {
		err := refuse(assignment(t, `{"name":"web","image":"x",`+service+`}`))
		var typed *Unsupported
		switch {
		case want == "" && err != nil:
			t.Errorf("refuse(%s) = %v, want nil", service, err)
		case want != "" && (!errors.As(err, &typed) || !strings.HasPrefix(err.Error(), want)):
			t.Errorf("refuse(%s) = %v, want *Unsupported with %q", service, err, want)
		}
	}
}

// A node offers what is allocatable less what the pods of others ask for.
func TestFacts(t *testing.T) {
	var other Pod
	if err := json.Unmarshal([]byte(`{"spec":{"nodeName":"n1","hostNetwork":true,"containers":[{"ports":[{"containerPort":10250}],
"resources":{"requests":{"cpu":"250m","memory":"1Gi"}}}],
"initContainers":[{"resources":{"requests":{"cpu":"500m"}}}]}}`), &other); err != nil {
		t.Fatal(err)
	}
	got := facts(nodeOf(t, aNode), []need{needOf(&other)}, "v1", "", "")
	if got.Capacity.CPU != 3000 || got.Capacity.Memory != 7*skerry.GiB || got.Capacity.Storage != 10_000_000_000 {
		t.Errorf("capacity = %+v, want 3 CPUs, 7Gi, 10G", got.Capacity)
	}
	if !got.Runtimes[0].NoUserNamespaces() || got.Runtimes[0].Cause == "" {
		t.Errorf("runtime = %+v, want it told that containers have the users of the node", got.Runtimes[0])
	}
	if got.Area != "eu-1a" || got.Arch != "arm64" || got.Address != "10.0.0.7" || len(got.Taints) != 1 || got.Taints[0] != "edge=yes" ||
		got.External != External {
		t.Errorf("facts = %+v, want area eu-1a, arm64, 10.0.0.7, taint edge=yes, external", got)
	}
	if ports := needOf(&other).ports; len(ports) != 1 || ports[0] != "tcp/10250" {
		t.Errorf("ports of a pod in the host's network = %v, want tcp/10250", ports)
	}
	if got := quantity("1e500", false); got != 0 && got != most {
		t.Errorf("quantity(1e500) = %d, want 0 or %d", got, int64(most))
	}
}

// A wait asked for by the server counts, within bounds.
func TestRefusal(t *testing.T) {
	err := refusal(429, "", []byte(`{"code":429,"reason":"TooManyRequests","message":"slow\u001b[31m","details":{"retryAfterSeconds":3000}}`))
	if err.RetryAfter != time.Minute || !passing(err) || strings.ContainsRune(err.Error(), '\x1b') {
		t.Errorf("refusal = %v, retry after %s, passing %v; want a clean text, 1m0s, true", err, err.RetryAfter, passing(err))
	}
	if !passing(refusal(409, "", []byte(`{"reason":"Conflict","message":"the quota has been modified"}`))) {
		t.Error("passing(a quota that two have changed) = false, want true: the pod is not there")
	}
	if err := refusal(409, "", []byte(`{"reason":"AlreadyExists","message":"it is there"}`)); !exists(err) || passing(err) {
		t.Errorf("of a pod that is there, exists = %v, passing = %v; want true, false", exists(err), passing(err))
	}
	if passing(refusal(403, "", []byte("no"))) {
		t.Error("passing(403) = true, want false: asking again does not help")
	}
}
