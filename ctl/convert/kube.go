package convert

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"skerry.dev/skerry"
)

// Document is one document of a file.
type Document struct {
	File string // in messages; empty if there is only one
	Line int    // of the file on which it begins; 0 is the first
	Data []byte
}

// kube is a set of Kubernetes objects that is being converted to one application: a Service in one file leads to a Deployment in another.
type kube struct {
	*Result
	namespace string               // that the objects are in; empty: none is named
	objects   map[string][]*object // by kind, in the order of the files
	workloads []*workload
	peers     map[string]*peer // Services that lead to a workload, by name
	hosts     *regexp.Regexp   // their names in texts; nil: there are none
	claims    map[string][]*workload
	entries   map[int]string  // who has a port of the workers
	there     map[string]bool // KIND/NAME of the objects
	expanded  int             // bytes of texts with the values of variables in their places
}

// object is one object. Its path in the report is KIND/NAME.
type object struct {
	*fields
	kind, name string
	meta       *fields
	used       bool              // by a workload
	remote     string            // of a claim: the PersistentVolume on NFS that it is bound to
	labels     map[string]string // of the service that it became, or that it leads to
}

// The kinds that are converted, with the versions of their API, and what is said of those that stand for nothing here.
var (
	kubeVersions = map[string]string{
		"Pod": "v1", "ReplicationController": "v1", "Service": "v1", "ConfigMap": "v1", "Secret": "v1", "PersistentVolumeClaim": "v1",
		"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "Job": "batch/v1",
		"CronJob": "batch/v1", "Ingress": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1",
		"HorizontalPodAutoscaler": "autoscaling/v2",
	}
	kubeKinds = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job", "CronJob", "Pod"}
	kubeLeft  = map[string]string{
		"Namespace":           "left out: what is in it is one application; skerry -n says in which namespace that is",
		"ServiceAccount":      "left out: programs get no account of Skerry",
		"PodDisruptionBudget": "left out: a new instance is ready before one is moved, unless it has local volumes",
		"StorageClass":        "left out: local volumes are directories of workers",
		"IngressClass":        "left out: the workers themselves are the ingress",
		"PriorityClass":       "left out: write placement.priority",
		"LimitRange":          "left out: a site's operator sets limits in its admission policy",
		"ResourceQuota":       "left out: skerry org quota sets limits",
	}
	kubeRefused = map[string]string{
		"CustomResourceDefinition": "Skerry has no custom resources",
		"Endpoints":                "addresses outside have no name of a service: write them into the environment",
		"EndpointSlice":            "addresses outside have no name of a service: write them into the environment",
		"Kustomization":            "render it first, and convert what kustomize build prints",
	}
)

// Kubernetes converts objects of Kubernetes to one application.
func Kubernetes(docs []Document, opt Options) (*Result, error) {
	conv := &kube{Result: newResult(FormatKubernetes), objects: map[string][]*object{}, peers: map[string]*peer{},
		claims: map[string][]*workload{}, entries: map[int]string{}, there: map[string]bool{}}
	for _, doc := range docs {
		if err := conv.read(doc); err != nil {
			return nil, err
		}
	}
	conv.oneNamespace()
	for _, kind := range kubeKinds {
		for _, obj := range conv.objects[kind] {
			conv.workloads = append(conv.workloads, newWorkload(obj))
		}
	}
	conv.services()
	conv.App.Metadata.Name = conv.called(opt)
	for _, load := range conv.workloads {
		conv.convert(load)
	}
	conv.published()
	for _, kind := range slices.Sorted(maps.Keys(conv.objects)) {
		for _, obj := range conv.objects[kind] {
			conv.other(obj)
		}
	}
	for _, load := range conv.workloads {
		if load.object.m != nil {
			conv.App.Spec.Services = append(conv.App.Spec.Services, load.svc)
		}
	}
	return conv.Result, conv.finish()
}

// read takes the objects of a document.
func (conv *kube) read(doc Document) error {
	fail := func(line, column int, format string, args ...any) error {
		text := fmt.Sprintf(format, args...)
		if line > 0 {
			text = fmt.Sprintf("line %d, column %d: %s", line+max(doc.Line-1, 0), column, text)
		}
		return skerry.Errorf(skerry.CodeInvalid, "the Kubernetes manifest is not valid: %s", text)
	}
	if line, column, text := Template(doc.Data); line > 0 {
		return fail(line, column, "%s is a template: render it first (helm template, kustomize build)", text)
	}
	var tree yaml.Node
	if err := yaml.Unmarshal(doc.Data, &tree); err != nil {
		return fail(0, 0, "%s", Shifted(err, doc.Line))
	}
	data, err := sigsyaml.YAMLToJSONStrict(doc.Data) // as kubectl reads it
	if err != nil {
		return fail(0, 0, "%s", Shifted(err, doc.Line))
	}
	var value map[string]any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&value); err != nil || len(tree.Content) == 0 {
		return fail(1, 1, "it is not an object")
	}
	return conv.take(value, tree.Content[0], doc, fail)
}

// take takes an object, or those of a list.
func (conv *kube) take(value map[string]any, node *yaml.Node, doc Document, fail func(int, int, string, ...any) error) error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	kind, _ := value["kind"].(string)
	version, _ := value["apiVersion"].(string)
	if items, ok := value["items"].([]any); ok && strings.HasSuffix(kind, "List") {
		list := child(node, "items")
		for i, item := range items {
			one, ok := item.(map[string]any)
			if !ok || list == nil || i >= len(list.Content) {
				return fail(node.Line, node.Column, "items[%d] is not an object", i)
			}
			if err := conv.take(one, list.Content[i], doc, fail); err != nil {
				return err
			}
		}
		return nil
	}
	if kind == "" || version == "" {
		return fail(node.Line, node.Column, "kind and apiVersion are needed")
	}
	meta, _ := value["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if name == "" {
		generated, _ := meta["generateName"].(string)
		if name = strings.TrimRight(generated, "-"); name == "" {
			return fail(node.Line, node.Column, "%s has no metadata.name", kind)
		}
	}
	at := kind + "/" + name
	if hook := textAt(meta, "annotations", "helm.sh/hook"); strings.HasPrefix(hook, "test") {
		conv.sources = append(conv.sources, source{at: at, node: node, file: doc.File, line: doc.Line})
		conv.add(at, Approximated, "left out: it is a test of a chart, for helm test")
		return nil
	}
	if conv.there[at] {
		conv.sources = append(conv.sources, source{at: at, node: node, file: doc.File, line: doc.Line})
		conv.add(at, Refused, "there is another object of this kind and name")
		return nil
	}
	conv.sources = append(conv.sources, source{at: at, node: node, file: doc.File, line: doc.Line})
	conv.there[at] = true
	obj := &object{fields: newFields(at, value, conv.Result), kind: kind, name: name}
	obj.fields.take("kind")
	obj.fields.take("apiVersion")
	obj.fields.without("status", "left out: it is what Kubernetes had observed")
	if want := kubeVersions[kind]; want != "" && version != want && !(kind == "HorizontalPodAutoscaler" && version == "autoscaling/v1") {
		obj.refuse("apiVersion", "%s of %s is not converted; write it as %s", kind, version, want)
		obj.m = nil
	}
	obj.meta = obj.sub("metadata")
	conv.objects[kind] = append(conv.objects[kind], obj)
	return nil
}

// child gives the value of a key in a mapping; nil: it has none.
func child(node *yaml.Node, key string) *yaml.Node {
	for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			if value := node.Content[i+1]; value.Kind != yaml.AliasNode {
				return value
			}
			return node.Content[i+1].Alias
		}
	}
	return nil
}

// oneNamespace sees to it that all objects are in one namespace: the names of two are not the same.
func (conv *kube) oneNamespace() {
	for _, kind := range slices.Sorted(maps.Keys(conv.objects)) {
		for _, obj := range conv.objects[kind] {
			if obj.m == nil {
				continue
			}
			namespace := obj.meta.text("namespace", "")
			if kind == "Namespace" {
				namespace = obj.name
			}
			switch {
			case namespace == "":
			case conv.namespace == "":
				conv.namespace = namespace
				fallthrough
			case conv.namespace == namespace:
				if kind != "Namespace" && namespace != "default" {
					obj.meta.kept("namespace", "what is in it is one application; skerry -n says in which namespace that is")
				}
			default:
				obj.meta.refuse("namespace", "other objects are in %s: convert each namespace by itself", conv.namespace)
			}
		}
	}
}

// called gives the application's name: the one asked for, the one that the objects say, or that of their namespace, workload or file.
func (conv *kube) called(opt Options) string {
	if opt.Name != "" {
		return Name(opt.Name)
	}
	for _, label := range []string{"app.kubernetes.io/part-of", "app.kubernetes.io/instance"} {
		found := map[string]bool{}
		for _, load := range conv.workloads {
			name := load.labels[label]
			if name == "" {
				name = textAt(load.object.meta.m, "labels", label)
			}
			found[name] = true
		}
		if names := slices.Collect(maps.Keys(found)); len(names) == 1 && Name(names[0]) != "" {
			return Name(names[0])
		}
	}
	if conv.namespace != "" && conv.namespace != "default" {
		return Name(conv.namespace)
	}
	if len(conv.workloads) == 1 {
		return Name(conv.workloads[0].object.name)
	}
	return cmp.Or(Name(opt.Base), "app")
}

// other takes what is no workload.
func (conv *kube) other(obj *object) {
	switch {
	case obj.m == nil:
		return
	case kubeLeft[obj.kind] != "":
		obj.approx("", "%s", kubeLeft[obj.kind])
		return
	case kubeRefused[obj.kind] != "":
		obj.refuse("", "%s", kubeRefused[obj.kind])
		return
	}
	switch obj.kind {
	case "ConfigMap", "Secret":
		// Who uses it has said what became of it.
		obj.leave(map[string]string{"immutable": "left out: a manifest says what there is"})
		obj.fields.take("data")
		obj.fields.take("binaryData")
		obj.fields.take("stringData")
		obj.fields.take("type")
		if !obj.used {
			obj.approx("", "left out: no workload of these files uses it")
		}
	case "PersistentVolumeClaim":
		conv.claim(obj)
	case "Ingress":
		conv.ingress(obj)
	case "NetworkPolicy":
		conv.policy(obj)
	case "HorizontalPodAutoscaler":
		conv.autoscaler(obj)
	case "PersistentVolume":
		conv.persistent(obj)
		return
	case "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
		conv.rights(obj)
		return
	case "Service":
	default:
		if !slices.Contains(kubeKinds, obj.kind) {
			obj.refuse("", "Skerry has nothing like %s", obj.kind)
			return
		}
	}
	obj.metadata()
	obj.nothingLike(nil)
}

// rights takes who may ask the API of Kubernetes what. A workload that runs under such an account asks, and finds nobody.
func (conv *kube) rights(obj *object) {
	for _, kind := range []string{"RoleBinding", "ClusterRoleBinding"} {
		for _, binding := range conv.objects[kind] {
			if binding != obj && textAt(binding.m, "roleRef", "name") != obj.name {
				continue
			}
			subjects, _ := binding.m["subjects"].([]any)
			for _, one := range subjects {
				subject, _ := one.(map[string]any)
				name := textAt(subject, "name")
				if textAt(subject, "kind") == "ServiceAccount" && slices.ContainsFunc(conv.workloads,
					func(load *workload) bool { return load.account == name }) {
					obj.refuse("", "a workload has the rights of %s, but there is no API of Kubernetes here; take them out if it does not ask", name)
					return
				}
			}
		}
	}
	obj.approx("", "left out: no workload of these files has these rights")
}

// metadata takes the rest of an object's metadata.
func (obj *object) metadata() {
	meta := obj.meta
	meta.take("name")
	meta.take("namespace")
	for _, key := range []string{"creationTimestamp", "uid", "resourceVersion", "generation", "managedFields", "selfLink", "ownerReferences",
		"finalizers", "generateName", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		meta.without(key, "left out: it is of the object in Kubernetes")
	}
	said, all := textsAt(meta.m, "labels"), true
	for key, value := range said {
		all = all && obj.labels[key] == value
	}
	if meta.take("labels"); all && len(said) > 0 {
		meta.kept("labels", "labels")
	} else if len(said) > 0 {
		meta.approx("labels", "left out: those of the pods are kept")
	}
	obj.annotations(meta, "annotations")
	meta.nothingLike(nil)
}

// annotations takes annotations. Some decide how requests are served, so that leaving them out would be a change.
func (obj *object) annotations(meta *fields, key string) {
	notes := meta.sub(key)
	for _, name := range slices.Sorted(maps.Keys(notes.m)) {
		_, last, _ := strings.Cut(name, "/")
		switch {
		case strings.Contains(name, "ingress") && slices.Contains(kubeIngressNotes, last):
			notes.refuse(name, "an ingress has nothing like it")
		case strings.HasPrefix(name, "helm.sh/hook") && obj.kind != "ServiceAccount":
			notes.refuse(name, "there are no hooks: take the object out, and run it by itself")
		default:
			notes.approx(name, "left out: nothing here reads it")
		}
	}
	notes.m = nil
}

// kubeIngressNotes are annotations of ingress controllers that change what a client gets.
var kubeIngressNotes = []string{"rewrite-target", "auth-type", "auth-url", "auth-secret", "auth-tls-secret", "whitelist-source-range",
	"denylist-source-range", "configuration-snippet", "server-snippet", "backend-protocol", "canary", "permanent-redirect",
	"temporal-redirect"}

// textAt gives a text below a path of keys; empty: there is none.
func textAt(m map[string]any, keys ...string) string {
	for _, key := range keys[:len(keys)-1] {
		m, _ = m[key].(map[string]any)
	}
	text, _ := asText(m[keys[len(keys)-1]])
	return text
}

// textsAt gives a mapping of texts below a path of keys.
func textsAt(m map[string]any, keys ...string) map[string]string {
	for _, key := range keys {
		m, _ = m[key].(map[string]any)
	}
	out := map[string]string{}
	for key, value := range m {
		out[key], _ = asText(value)
	}
	return out
}

// find gives an object; nil: it is not in these files.
func (conv *kube) find(kind, name string) *object {
	for _, obj := range conv.objects[kind] {
		if obj.name == name && obj.m != nil {
			return obj
		}
	}
	return nil
}
