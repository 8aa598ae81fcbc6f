package convert

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// documents splits a file as the commands do.
func documents(data []byte) (docs []Document) {
	line := 1
	for part := range strings.SplitSeq(string(data), "\n---\n") {
		if strings.TrimSpace(part) != "" {
			docs = append(docs, Document{Line: line, Data: []byte(part)})
		}
		line += strings.Count(part, "\n") + 2
	}
	return docs
}

// TestKubernetes converts objects of Kubernetes. Each directory has them in a file, and in want the manifest and the report.
func TestKubernetes(t *testing.T) {
	dirs, err := filepath.Glob("testdata/kubernetes/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("there are no files: %v", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, "objects.yaml"))
			if err != nil {
				t.Fatalf("read the objects: %v", err)
			}
			result, err := Kubernetes(documents(data), Options{Base: filepath.Base(dir)})
			golden(t, filepath.Join(dir, "want"), result, err)
		})
	}
}

// golden compares a result with what is in a file.
func golden(t *testing.T, file string, result *Result, err error) {
	t.Helper()
	var got bytes.Buffer
	if result != nil {
		text, err := result.Manifest()
		if err != nil {
			t.Fatalf("write the manifest: %v", err)
		}
		got.Write(text)
		for _, field := range result.Fields {
			fmt.Fprintf(&got, "# line %d, %s %s: %s\n", field.Line, field.Verdict, field.Path, field.Note)
		}
	}
	if err != nil {
		fmt.Fprintf(&got, "# error: %v\n", err)
	}
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatalf("write the golden file: %v", err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Errorf("it became (-update writes it):\n%s%v", got.Bytes(), err)
	}
}

// TestCorpus holds which share of real applications is converted without a refusal. The files are written after real ones, which
// SOURCES names.
func TestCorpus(t *testing.T) {
	kinds, files := corpusKinds(t, "testdata/corpus/kubernetes")
	total, converted := map[string]int{}, map[string]int{}
	reasons := map[string]int{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("read %s: %v", file, err)
		}
		kind := kinds[strings.TrimSuffix(filepath.Base(file), ".yaml")]
		total[kind]++
		result, err := Kubernetes(documents(data), Options{Base: "corpus"})
		if result == nil {
			t.Errorf("%s is not read: %v", file, err)
			continue
		}
		refused := result.Count(Refused)
		if err != nil && refused == 0 {
			t.Errorf("%s becomes a manifest that is not valid: %v", file, err)
		}
		if refused == 0 {
			converted[kind]++
		}
		for _, field := range result.Fields {
			if field.Verdict == Refused {
				reasons[field.Note]++
			}
		}
	}
	all := total["application"] + total["platform"]
	t.Logf("%d of %d applications, %d of all %d files", converted["application"], total["application"],
		converted["application"]+converted["platform"], all)
	for _, why := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%3d %s", reasons[why], why)
	}
	if 5*converted["application"] < 4*total["application"] {
		t.Errorf("%d of %d applications are converted without a refusal; at least 80 %% have to be", converted["application"],
			total["application"])
	}
	if all < 60 || total["platform"] > 6 {
		t.Errorf("there are %d files, %d of them of platforms", all, total["platform"])
	}
}

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n" +
	"  template:\n    metadata: {labels: {app: web}}\n    spec: {containers: [{name: web, image: x}]}\n"

// What cannot be read is refused with the place, in the file and not in the document.
func TestBadKubernetes(t *testing.T) {
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for letter := 'b'; letter < 'j'; letter++ {
		bomb += fmt.Sprintf("  %c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", letter, letter, letter-1, letter-1, letter-1, letter-1,
			letter-1, letter-1, letter-1, letter-1, letter-1, letter-1)
	}
	for name, bad := range map[string]struct{ text, want string }{
		"no YAML":        {"apiVersion: v1\nkind: [", "line 11"},
		"a tab":          {"apiVersion: v1\nkind: Pod\nmetadata:\n\tname: x\n", "line 13"},
		"no kind":        {"apiVersion: v1\nmetadata: {name: x}\n", "line 10, column 1: kind and apiVersion are needed"},
		"no name":        {"apiVersion: v1\nkind: Pod\n", "line 10, column 1: Pod has no metadata.name"},
		"not an object":  {"[a]", "line 10, column 1: it is not an object"},
		"a list of none": {"apiVersion: v1\nkind: List\nitems: [a]\n", "items[0] is not an object"},
		"a key twice":    {"apiVersion: v1\nkind: Pod\nkind: Pod\n", `key "kind" already set`},
		"a cycle":        {"apiVersion: v1\nkind: Pod\nmetadata: &m {name: x, labels: *m}\n", "contains itself"},
		"a bomb":         {bomb, "excessive aliasing"},
		"a template": {"apiVersion: v1\nkind: Pod\nmetadata:\n  name: {{ .Values.name }}\n",
			"line 13, column 9: {{ .Values.name }} is a template"},
		"a quoted template": {"apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: x, image: '{{ .Values.image }}'}]}\n",
			"line 13, column 38: {{ .Values.image }} is a template"},
		"nothing to run": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", "no service that Skerry could run"},
	} {
		_, err := Kubernetes([]Document{{Line: 10, Data: []byte(bad.text)}}, Options{})
		if err == nil || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%s: %v does not say %q", name, err, bad.want)
		}
	}
	result, err := Kubernetes(documents([]byte("\n\n---\n"+strings.Replace(deployment, "image:", "imagge:", 1))), Options{})
	want := Field{Path: "Deployment/web.spec.template.spec.containers[0].imagge", Line: 11, Verdict: Refused,
		Note: `no such field is known; did you mean "image"?`}
	if result == nil || !slices.Contains(result.Fields, want) {
		t.Errorf("a misspelt field is not named: %v, %+v", err, result)
	}
}

// An application has the name that the files give it.
func TestKubernetesName(t *testing.T) {
	second := strings.ReplaceAll(deployment, "web", "api")
	for name, one := range map[string]struct {
		text, want string
		opt        Options
	}{
		"asked for":    {deployment, "other", Options{Name: "other", Base: "file"}},
		"the workload": {deployment, "web", Options{Base: "file"}},
		"the file":     {deployment + "\n---\n" + second, "file", Options{Base: "file"}},
		"nothing":      {deployment + "\n---\n" + second, "app", Options{}},
		"namespace": {strings.Replace(deployment, "{name: web}", "{name: web, namespace: market}", 1) + "\n---\n" + second, "market",
			Options{Base: "file"}},
		"instance": {strings.Replace(deployment, "{name: web}", "{name: web, labels: {app.kubernetes.io/instance: red}}", 1), "red",
			Options{Base: "file"}},
		"part of": {strings.Replace(deployment, "{app: web}}\n    spec", "{app: web, app.kubernetes.io/part-of: blue}}\n    spec", 1), "blue",
			Options{Base: "file"}},
	} {
		result, err := Kubernetes(documents([]byte(one.text)), one.opt)
		if err != nil || result.App.Metadata.Name != one.want {
			t.Errorf("%s: the application is called %+v, %v; expected %q", name, result, err, one.want)
		}
	}
}

// Names and ports of Services are written as they are here, wherever they are; what only looks like one stays.
func TestPeers(t *testing.T) {
	const service = "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
		"spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}\n"
	for text, want := range map[string]string{
		"web":                                    "web",
		"web:80":                                 "web:8080",
		"web:8080":                               "web:8080",
		"http://web":                             "http://web:8080",
		"http://web/path":                        "http://web:8080/path",
		"https://web/path":                       "https://web/path",
		"http://me:secret@web/":                  "http://me:secret@web:8080/",
		"web.default":                            "web",
		"web.default.svc:80,x":                   "web:8080,x",
		"tcp://web.default.svc.cluster.local:80": "tcp://web:8080",
		"web.example.org:80":                     "web.example.org:80",
		"my-web:80":                              "my-web:80",
		"web-1:80":                               "web-1:80",
		"webs:80 /web web.conf":                  "webs:80 /web web.conf",
		"0.web:80":                               "0.web:80",
		"web.other.svc:80":                       "web.other.svc:80",
	} {
		file := strings.Replace(deployment, "image: x}", fmt.Sprintf("image: x, args: [%q]}", text), 1) + service
		result, err := Kubernetes(documents([]byte(file)), Options{})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := result.App.Spec.Services[0].Args[0]; got != want {
			t.Errorf("%q became %q, expected %q", text, got, want)
		}
	}
}

// A Service's port is kept where the manifest can have it: not where something listens at it, perhaps by a Service that comes later, and
// not where the kernel of a sandbox takes packets first.
func TestServicePorts(t *testing.T) {
	const service = "\n---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {selector: {app: web}, ports: [%s]}\n"
	for name, c := range map[string]struct {
		pod, ports, later string
		want              []int
	}{
		"kept":         {ports: "{port: 80, targetPort: 8080}", want: []int{80}},
		"the same":     {ports: "{port: 8080}", want: []int{0}},
		"one of two":   {ports: "{port: 80, targetPort: 8080}", later: "{port: 81, targetPort: 8080}", want: []int{80}},
		"of two ports": {ports: "{port: 80, targetPort: 8080}", later: "{port: 80, targetPort: 9090}", want: []int{80, 0}},
		"taken later":  {ports: "{port: 80, targetPort: 8080}", later: "{port: 81, targetPort: 80}", want: []int{0, 81}},
		"gVisor":       {pod: "runtimeClassName: gvisor, ", ports: "{port: 80, targetPort: 8080}", want: []int{0}},
		"a machine":    {pod: "runtimeClassName: kata, ", ports: "{port: 80, targetPort: 8080}", want: []int{0}},
		"sctp":         {ports: "{port: 80, targetPort: 8080, protocol: SCTP}", want: []int{0}},
	} {
		file := strings.Replace(deployment, "containers:", c.pod+"containers:", 1) + fmt.Sprintf(service, "web", c.ports)
		if c.later != "" {
			file += fmt.Sprintf(service, "web2", c.later)
		}
		result, err := Kubernetes(documents([]byte(file)), Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var got []int
		for _, port := range result.App.Spec.Services[0].Ports {
			got = append(got, port.ServicePort)
		}
		if err := result.App.Validate(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: service ports %v, expected %v: %v", name, got, c.want, err)
		}
	}
}

// FuzzKubernetes holds that no file ends the program, and that what is converted without a refusal is a manifest.
func FuzzKubernetes(f *testing.F) {
	addFiles(f, "testdata/kubernetes/*/objects.yaml")
	f.Add([]byte(deployment))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		Detect(data)
		if result, err := Kubernetes(documents(data), Options{}); err == nil {
			if _, err := result.Manifest(); err != nil {
				t.Errorf("write the manifest: %v", err)
			}
		}
	})
}

// TestAddressesOfPorts: a port is published at the address that the file names, and nowhere if that is not to be had. The same number by
// another protocol or at another address is a port of its own.
func TestAddressesOfPorts(t *testing.T) {
	kube := func(ports string) (*Result, error) {
		return Kubernetes(documents([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a, ports: ["+
			ports+"]}]}\n")), Options{Base: "a"})
	}
	compose := func(ports string) (*Result, error) {
		return Compose(t.Context(), []byte("services: {a: {image: a, ports: ["+ports+"]}}\n"), Options{Base: "a"})
	}
	for name, c := range map[string]struct {
		convert     func(string) (*Result, error)
		ports, want string
	}{
		"two protocols": {kube, "{containerPort: 53, hostPort: 53, hostIP: 127.0.0.1}, {containerPort: 53, hostPort: 53, hostIP: 127.0.0.1, protocol: UDP}",
			"tcp 53@127.0.0.1 udp 53@127.0.0.1"},
		"two addresses": {kube, "{containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}, {containerPort: 81, hostPort: 80, hostIP: 192.0.2.1}",
			"tcp 80@127.0.0.1 tcp 80@192.0.2.1"},
		"IPv6":                {kube, "{containerPort: 80, hostPort: 80, hostIP: 'fd00::1'}", "tcp 0@"},
		"no address":          {kube, "{containerPort: 80, hostPort: 80, hostIP: lo}", "tcp 0@"},
		"all":                 {kube, "{containerPort: 80, hostPort: 80, hostIP: 0.0.0.0}", "tcp 80@"},
		"IPv6 in Compose":     {compose, "{target: 80, published: '80', host_ip: 'fd00::1'}", "tcp 0@"},
		"loopback in Compose": {compose, "{target: 80, published: '80', host_ip: '::1'}", "tcp 80@127.0.0.1"},
	} {
		result, err := c.convert(c.ports)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for _, p := range result.App.Spec.Services[0].Ports {
			got = append(got, fmt.Sprintf("%s %d@%s", p.Proto(), p.HostPort, p.HostAddress))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", name, strings.Join(got, " "), c.want)
		}
	}
}
