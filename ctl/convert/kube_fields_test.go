package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/internal/testenv"
)

// web is what every set of objects has: a Deployment, its Service, and what a pod may refer to.
const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: x, ports: [{name: http, containerPort: 80}], resources: {requests: {cpu: 1}}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: sample}
data: {sample: text}
---
apiVersion: v1
kind: Secret
metadata: {name: sample}
stringData: {sample: text}
---
`

// kubePod is a pod with one of everything that its fields are in.
const kubePod = `{"containers":[{"name":"main","image":"x","ports":[{"name":"http","containerPort":8080}],
	"volumeMounts":[{"name":"v","mountPath":"/v"}],"env":[{"name":"A","value":"b"}]}],
	"initContainers":[{"name":"first","image":"x"}],"volumes":[{"name":"v","emptyDir":{}}],"restartPolicy":%q}`

// kubeSamples are the kinds, with an object of each as it is without the field in question.
func kubeSamples() map[string]string {
	template := func(restart string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"app":"it"}},"spec":`+kubePod+`}`, restart)
	}
	selected := `"selector":{"matchLabels":{"app":"it"}},"template":` + template("Always")
	object := func(version, kind, spec string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"it"},"spec":{%s}}`, version, kind, spec)
	}
	return map[string]string{
		"Deployment":  object("apps/v1", "Deployment", selected),
		"StatefulSet": object("apps/v1", "StatefulSet", selected),
		"DaemonSet":   object("apps/v1", "DaemonSet", selected),
		"ReplicaSet":  object("apps/v1", "ReplicaSet", selected),
		"Job":         object("batch/v1", "Job", `"template":`+template("Never")),
		"CronJob": object("batch/v1", "CronJob",
			`"schedule":"@daily","jobTemplate":{"spec":{"template":`+template("Never")+`}}`),
		"Pod": `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"it","labels":{"app":"it"}},"spec":` +
			fmt.Sprintf(kubePod, "Always") + `}`,
		"Service": object("v1", "Service", `"selector":{"app":"web"},"ports":[{"port":80}]`),
		"Ingress": object("networking.k8s.io/v1", "Ingress",
			`"rules":[{"host":"a.example.org","http":{"paths":[{"path":"/a","backend":{"service":{"name":"web","port":{"number":80}}}}]}}]`),
		"NetworkPolicy": object("networking.k8s.io/v1", "NetworkPolicy",
			`"podSelector":{},"egress":[{"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}],"ports":[{"port":443}]}]`),
		"HorizontalPodAutoscaler": object("autoscaling/v2", "HorizontalPodAutoscaler",
			`"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":3,
			"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]`),
		"PersistentVolumeClaim": object("v1", "PersistentVolumeClaim", `"accessModes":["ReadWriteOnce"]`),
		"ConfigMap":             `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"it"}}`,
		"Secret":                `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"it"}}`,
	}
}

//go:generate sh -c "go -C ../../scripts/kubefields run . >testdata/kubernetes-fields.txt"

// kubeFieldsFile holds the fields of each kind, as the types of Kubernetes' API have them. scripts/kubefields prints it.
const kubeFieldsFile = "testdata/kubernetes-fields.txt"

// kubernetesFields gives the paths of the fields of each kind, such as spec.replicas, with a value for each. A list has one element.
func kubernetesFields(t *testing.T) map[string]map[string]any {
	t.Helper()
	text, err := os.ReadFile(kubeFieldsFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for line := range strings.Lines(string(text)) {
		kind, rest, _ := strings.Cut(line, " ")
		path, sample, _ := strings.Cut(rest, " ")
		var value any
		if err := json.Unmarshal([]byte(sample), &value); err != nil {
			t.Fatalf("%s: %q: %v", kubeFieldsFile, line, err)
		}
		if out[kind] == nil {
			out[kind] = map[string]any{}
		}
		out[kind][path] = value
	}
	return out
}

// TestKubernetesFieldsAreCurrent compares the list of fields with the types.
func TestKubernetesFieldsAreCurrent(t *testing.T) {
	testenv.Long(t, "TestNoKubernetesFieldIsIgnored takes the list as it is")
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "../../scripts/kubefields"
	want, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	if text, err := os.ReadFile(kubeFieldsFile); err != nil || string(text) != string(want) {
		t.Errorf("%s is not what scripts/kubefields prints: %v; make generate", kubeFieldsFile, err)
	}
}

// TestNoKubernetesFieldIsIgnored sets one field after the other of each kind: each changes the manifest or the report.
func TestNoKubernetesFieldIsIgnored(t *testing.T) {
	fields, samples := kubernetesFields(t), kubeSamples()
	if n := len(samples); len(fields) != n {
		t.Fatalf("fields of %d kinds, samples of %d", len(fields), n)
	}
	seen := 0
	for kind, sample := range samples {
		t.Run(kind, func(t *testing.T) {
			if len(fields[kind]) == 0 {
				t.Fatalf("%s has no fields of it", kubeFieldsFile)
			}
			var base map[string]any
			if err := json.Unmarshal([]byte(sample), &base); err != nil {
				t.Fatal(err)
			}
			without := kubeOutcome(t, base)
			for _, path := range slices.Sorted(maps.Keys(fields[kind])) {
				same := func(prefix string) bool { return strings.HasPrefix(kind+"."+path+".", prefix+".") }
				if slices.ContainsFunc(slices.Collect(maps.Keys(kubeSame)), same) {
					continue
				}
				seen++
				with := withField(base, strings.Split(path, "."), fields[kind][path])
				if kubeOutcome(t, with) == without {
					text, _ := json.Marshal(with)
					t.Errorf("%s says nothing of %s: %s", kind, path, text)
				}
			}
		})
	}
	if seen < 1000 {
		t.Errorf("only %d fields were looked at", seen)
	}
}

// kubeSame are fields that change nothing here, below the paths given, with the reason.
var kubeSame = map[string]string{
	"ConfigMap.data":       "who uses the object says so; of this one it is said that nobody does",
	"ConfigMap.binaryData": "the same",
	"Secret.data":          "the same",
	"Secret.stringData":    "the same",
	"Secret.type":          "it says for whom the data is, which are named by its keys",
	"HorizontalPodAutoscaler.spec.scaleTargetRef.apiVersion": "there is one version of a kind",
	"NetworkPolicy.spec.ingress":                             "it is said of all of it",
	"NetworkPolicy.spec.egress.0.to.0.podSelector":           "it is said of all of it",
	"NetworkPolicy.spec.egress.0.to.0.namespaceSelector":     "it is said of all of it",
}

// kubeOutcome converts an object beside the others, and gives all that there is to see of it.
func kubeOutcome(t *testing.T, object map[string]any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	docs := []Document{{Data: text}}
	for part := range strings.SplitSeq(web, "---\n") {
		if strings.TrimSpace(part) != "" {
			docs = append(docs, Document{Data: []byte(part)})
		}
	}
	result, err := Kubernetes(docs, Options{Name: "it"})
	if result == nil {
		return err.Error()
	}
	manifest, badErr := result.Manifest()
	if badErr != nil {
		t.Fatal(badErr)
	}
	return fmt.Sprintf("%s%+v", manifest, result.Fields)
}

// withField gives a copy of an object with one field set.
func withField(object any, path []string, value any) map[string]any {
	var set func(at any, path []string) any
	set = func(at any, path []string) any {
		if len(path) == 0 {
			return value
		}
		if path[0] == "0" {
			list, _ := at.([]any)
			var first any
			if len(list) > 0 {
				first = list[0]
			}
			return append([]any{set(first, path[1:])}, list[min(1, len(list)):]...)
		}
		out := map[string]any{}
		from, _ := at.(map[string]any)
		maps.Copy(out, from)
		out[path[0]] = set(out[path[0]], path[1:])
		return out
	}
	return set(object, path).(map[string]any)
}
