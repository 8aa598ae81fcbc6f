package apps

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// What a site may change by itself, and what waits for a person.
func TestBeyond(t *testing.T) {
	const base = `{"name": "web", "image": "registry.example.com:5000/shop/web:1", "resources": {"cpu": "100m"}, "ports": [{"port": 80}]}`
	parse := func(text string) *spec.ServiceSpec {
		s := new(spec.ServiceSpec)
		if err := json.Unmarshal([]byte(text), s); err != nil {
			t.Fatal(text, err)
		}
		return s
	}
	for _, change := range []string{`"replicas": 5`, `"image": "registry.example.com:5000/shop/web:2"`, `"image": "registry.example.com:5000/shop/web@sha256:` + strings.Repeat("a", 64) + `"`,
		`"image": "registry.example.com:5000/shop/web"`, `"args": ["x"]`, `"env": {"A": "b"}`, `"resources": {"cpu": "200m", "memory": "1Gi"}`, `"probes": {"readiness": {"tcp": {"port": 80}}}`,
		`"terminationGrace": "1s"`, `"config": [{"path": "/etc/x", "content": "y"}]`} {
		if got := beyond(parse(base), parse(base[:len(base)-1]+","+change+"}")); len(got) > 0 {
			t.Errorf("%s: %v", change, got)
		}
	}
	for change, field := range map[string]string{
		`"image": "evil:1"`: "image", `"image": "registry.example.com:5000/shop/web2:1"`: "image", `"image": "registry.example.com/shop/web:1"`: "image", `"image": "web:1"`: "image",
		`"runtime": "native"`: "runtime", `"isolation": "shared"`: "isolation", `"security": {"privileged": true}`: "security", `"security": {"addCaps": ["SYS_ADMIN"]}`: "security.addCaps",
		`"security": {"seccomp": "unconfined"}`: "security", `"user": "0"`: "user", `"tty": true`: "tty", `"volumes": [{"name": "v", "host": {"path": "/"}}]`: "volumes",
		`"mounts": [{"volume": "v", "path": "/x"}]`: "mounts", `"devices": [{"name": "gpu"}]`: "devices", `"secrets": [{"name": "s"}]`: "secrets", `"ports": [{"port": 80, "hostPort": 80}]`: "ports",
		`"export": [{"app": "x"}]`: "export", `"ingress": [{"host": "x"}]`: "ingress", `"placement": {"cluster": "b"}`: "placement", `"links": [{"service": "x"}]`: "links",
		`"sidecars": [{"name": "x", "image": "evil:1"}]`: "sidecars", `"init": [{"name": "x", "image": "evil:1"}]`: "init", `"labels": {"a": "b"}`: "labels", `"mode": "job"`: "mode",
		`"migration": {"mode": "checkpoint"}`: "migration", `"resources": {"exclusiveCPUs": 1}`: "resources", `"resources": {"gpus": 1}`: "resources",
	} {
		if got := beyond(parse(base), parse(base[:len(base)-1]+","+change+"}")); !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, field) }) {
			t.Errorf("%s: %v", change, got)
		}
	}
	// What runs with the rights of the machine keeps its command.
	const native = `{"name": "web", "runtime": "native", "command": ["/bin/true"]}`
	if got := beyond(parse(native), parse(strings.Replace(native, "true", "sh", 1))); !slices.Equal(got, []string{"command"}) {
		t.Error(got)
	}
	if got := beyond(parse(native), parse(native)); len(got) > 0 {
		t.Error(got)
	}
}

func TestRepository(t *testing.T) {
	for ref, want := range map[string]string{"web": "web", "web:1": "web", "a/web:1": "a/web", "h:5000/web": "h:5000/web", "h:5000/web:1": "h:5000/web", "web:1@sha256:aa": "web", "h:5000/web@sha256:aa": "h:5000/web", "": ""} {
		if got := repository(ref); got != want {
			t.Errorf("%q: %q", ref, got)
		}
	}
}
