package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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

// kubeSamples are the kinds, with their types and an object of each as it is without the field in question.
func kubeSamples() map[string]struct {
	of   any
	base string
} {
	template := func(restart string) string {
		return fmt.Sprintf(`{"metadata":{"labels":{"app":"it"}},"spec":`+kubePod+`}`, restart)
	}
	selected := `"selector":{"matchLabels":{"app":"it"}},"template":` + template("Always")
	object := func(version, kind, spec string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"it"},"spec":{%s}}`, version, kind, spec)
	}
	type sample = struct {
		of   any
		base string
	}
	return map[string]sample{
		"Deployment":  {apps.Deployment{}, object("apps/v1", "Deployment", selected)},
		"StatefulSet": {apps.StatefulSet{}, object("apps/v1", "StatefulSet", selected)},
		"DaemonSet":   {apps.DaemonSet{}, object("apps/v1", "DaemonSet", selected)},
		"ReplicaSet":  {apps.ReplicaSet{}, object("apps/v1", "ReplicaSet", selected)},
		"Job":         {batch.Job{}, object("batch/v1", "Job", `"template":`+template("Never"))},
		"CronJob": {batch.CronJob{}, object("batch/v1", "CronJob",
			`"schedule":"@daily","jobTemplate":{"spec":{"template":`+template("Never")+`}}`)},
		"Pod": {core.Pod{}, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"it","labels":{"app":"it"}},"spec":` +
			fmt.Sprintf(kubePod, "Always") + `}`},
		"Service": {core.Service{}, object("v1", "Service", `"selector":{"app":"web"},"ports":[{"port":80}]`)},
		"Ingress": {networking.Ingress{}, object("networking.k8s.io/v1", "Ingress",
			`"rules":[{"host":"a.example.org","http":{"paths":[{"path":"/a","backend":{"service":{"name":"web","port":{"number":80}}}}]}}]`)},
		"NetworkPolicy": {networking.NetworkPolicy{}, object("networking.k8s.io/v1", "NetworkPolicy",
			`"podSelector":{},"egress":[{"to":[{"ipBlock":{"cidr":"192.0.2.0/24"}}],"ports":[{"port":443}]}]`)},
		"HorizontalPodAutoscaler": {autoscaling.HorizontalPodAutoscaler{}, object("autoscaling/v2", "HorizontalPodAutoscaler",
			`"scaleTargetRef":{"kind":"Deployment","name":"web"},"maxReplicas":3,
			"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":50}}}]`)},
		"PersistentVolumeClaim": {core.PersistentVolumeClaim{}, object("v1", "PersistentVolumeClaim", `"accessModes":["ReadWriteOnce"]`)},
		"ConfigMap":             {core.ConfigMap{}, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"it"}}`},
		"Secret":                {core.Secret{}, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"it"}}`},
	}
}

// TestNoKubernetesFieldIsIgnored sets one field after the other of each kind, as the types of its API have them: each changes the manifest
// or the report.
func TestNoKubernetesFieldIsIgnored(t *testing.T) {
	fields := 0
	for kind, sample := range kubeSamples() {
		t.Run(kind, func(t *testing.T) {
			var base map[string]any
			if err := json.Unmarshal([]byte(sample.base), &base); err != nil {
				t.Fatal(err)
			}
			without := kubeOutcome(t, base)
			paths := kubePaths(reflect.TypeOf(sample.of))
			for _, path := range slices.Sorted(maps.Keys(paths)) {
				same := func(prefix string) bool { return strings.HasPrefix(kind+"."+path+".", prefix+".") }
				below := strings.Contains(path, "template.spec.") && kind != "Deployment" // one function reads all pods
				if below || slices.ContainsFunc(slices.Collect(maps.Keys(kubeSame)), same) {
					continue
				}
				fields++
				with := withField(base, strings.Split(path, "."), paths[path])
				if kubeOutcome(t, with) == without {
					text, _ := json.Marshal(with)
					t.Errorf("%s says nothing of %s: %s", kind, path, text)
				}
			}
		})
	}
	if fields < 1000 {
		t.Errorf("only %d fields were looked at", fields)
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

// kubePaths gives all fields of a type, such as spec.replicas, with a value for each. A list has one element, and a type within itself
// ends.
func kubePaths(of reflect.Type) map[string]any {
	out := map[string]any{}
	var walk func(of reflect.Type, path string, within []reflect.Type)
	walk = func(of reflect.Type, path string, within []reflect.Type) {
		for of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if value, leaf := kubeValue(of); leaf {
			out[path] = value
			return
		}
		if slices.Contains(within, of) {
			return
		}
		within = append(slices.Clip(within), of)
		switch of.Kind() {
		case reflect.Slice:
			walk(of.Elem(), path+".0", within)
		case reflect.Map:
			walk(of.Elem(), path+".sample", within)
		case reflect.Struct:
			for i := range of.NumField() {
				name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
				switch {
				case name == "status" || name == "metadata" && path == "":
				case name == "":
					walk(of.Field(i).Type, path, within) // its fields are this one's
				default:
					walk(of.Field(i).Type, strings.TrimPrefix(path+"."+name, "."), within)
				}
			}
		}
	}
	walk(of, "", nil)
	for name := range out {
		if name == "" || name == "kind" || name == "apiVersion" {
			delete(out, name)
		}
	}
	return out
}

// kubeValue gives a value of a type that has no fields of its own.
func kubeValue(of reflect.Type) (any, bool) {
	switch of {
	case reflect.TypeFor[resource.Quantity]():
		return "5Mi", true
	case reflect.TypeFor[intstr.IntOrString]():
		return 7, true
	case reflect.TypeFor[meta.Time](), reflect.TypeFor[meta.MicroTime]():
		return "2026-01-02T03:04:05Z", true
	case reflect.TypeFor[meta.FieldsV1]():
		return map[string]any{"f": map[string]any{}}, true
	case reflect.TypeFor[[]byte]():
		return "dGV4dA==", true
	}
	switch of.Kind() {
	case reflect.String:
		return "sample", true
	case reflect.Bool:
		return true, true
	case reflect.Int, reflect.Int32, reflect.Int64:
		return 7, true
	}
	return nil, false
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
