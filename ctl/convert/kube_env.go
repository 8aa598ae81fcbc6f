package convert

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// environment takes the variables of a container. Those that are only known when it starts, and those of Secrets, stay apart.
func (conv *kube) environment(it *pod, from *fields, out *spec.Container) {
	out.Env, out.EnvFields, out.EnvSecrets = map[string]string{}, map[string]spec.EnvField{}, map[string]spec.SecretFile{}
	for _, all := range from.each("envFrom") {
		prefix := all.text("prefix", "")
		if all.m["configMapRef"] == nil && all.m["secretRef"] == nil {
			all.refuse("", "it is neither of a ConfigMap nor of a Secret")
		}
		for _, kind := range []string{"configMapRef", "secretRef"} {
			if ref := all.sub(kind); ref.m != nil {
				conv.allOf(it, ref, strings.TrimSuffix(kind, "Ref"), prefix, out)
			}
		}
		all.nothingLike(nil)
	}
	for _, one := range from.each("env") {
		name := one.text("name", "")
		if one.has("valueFrom") {
			forgetVariable(out, name) // the last of a name counts
			conv.valueFrom(it, from, one, name, out)
		} else {
			value := conv.expand(one, "value", one.text("value", ""), out)
			forgetVariable(out, name)
			out.Env[name] = conv.peersIn(one, "value", value)
			one.kept("", "env")
		}
		if !variableName(name) {
			forgetVariable(out, name)
			one.refuse("name", "%q is no name of a variable", name)
		}
		one.nothingLike(nil)
	}
	if n := len(out.EnvFields) + len(out.EnvSecrets); n > spec.MaxEnvLate {
		from.refuse("env", "%d variables are of Secrets and fields of the pod; at most %d may be", n, spec.MaxEnvLate)
	}
	if len(out.Env) == 0 {
		out.Env = nil
	}
	if len(out.EnvFields) == 0 {
		out.EnvFields = nil
	}
	if len(out.EnvSecrets) == 0 {
		out.EnvSecrets = nil
	}
}

// variableName accepts names that a manifest can have, and to which a text can refer.
func variableName(name string) bool {
	return spec.CheckEnvName(name) && !strings.ContainsAny(name, "()")
}

func forgetVariable(out *spec.Container, name string) {
	delete(out.Env, name)
	delete(out.EnvFields, name)
	delete(out.EnvSecrets, name)
}

// allOf takes all variables that a ConfigMap or Secret has.
func (conv *kube) allOf(it *pod, ref *fields, kind, prefix string, out *spec.Container) {
	name, optional := ref.text("name", ""), ref.flag("optional", "")
	kind = map[string]string{"configMap": "ConfigMap", "secret": "Secret"}[kind]
	obj := conv.find(kind, name)
	ref.nothingLike(nil)
	switch {
	case obj == nil && optional:
		ref.approx("name", "left out: there is no %s %s in these files", kind, name)
		return
	case obj == nil:
		ref.refuse("name", "there is no %s %s in these files: give it, too", kind, name)
		return
	}
	data := conv.data(obj)
	for _, key := range slices.Sorted(maps.Keys(data)) {
		switch {
		case !variableName(prefix + key):
			ref.approx("name", "left out: %q is no name of a variable", prefix+key)
		case kind == "Secret":
			forgetVariable(out, prefix+key)
			it.secretEnv(ref, name, key, prefix+key, out)
		default:
			forgetVariable(out, prefix+key)
			out.Env[prefix+key] = conv.peersIn(obj.fields, "data."+key, data[key])
		}
	}
	if kind == "Secret" {
		ref.approx("name", "envSecrets: %s", it.secretCommand(name))
	} else {
		ref.kept("name", "env")
	}
}

// secretEnv has a variable be of a Secret, which the service then uses.
func (it *pod) secretEnv(from *fields, name, key, variable string, out *spec.Container) {
	if (spec.SecretValue{key: {0}}).Check() != nil || Name(name) == "" {
		from.refuse("", "a file of a secret cannot be called %q", key)
		return
	}
	if it.envSecrets == nil {
		it.envSecrets = map[string][]string{}
	}
	if !slices.Contains(it.envSecrets[name], key) {
		it.envSecrets[name] = append(it.envSecrets[name], key)
	}
	uses := &it.load.svc.Secrets
	if !slices.ContainsFunc(*uses, func(u spec.SecretUse) bool { return u.Name == Name(name) }) {
		*uses = append(*uses, spec.SecretUse{Name: Name(name)})
	}
	out.EnvSecrets[variable] = spec.SecretFile(Name(name) + "/" + key)
}

// secretCommand says how the Secret is made that variables are of.
func (it *pod) secretCommand(name string) string {
	files := map[string]bool{}
	for _, key := range it.envSecrets[name] {
		files[key] = true
	}
	if obj := it.find("Secret", name); obj != nil {
		for key := range it.data(obj) {
			files[key] = true
		}
	}
	var given []string
	for _, key := range slices.Sorted(maps.Keys(files)) {
		given = append(given, "--from-file "+key+"=FILE")
	}
	return "create it before: skerry secret create " + Name(name) + " " + strings.Join(given, " ")
}

// valueFrom takes a variable whose value is elsewhere.
func (conv *kube) valueFrom(it *pod, container, one *fields, name string, out *spec.Container) {
	from := one.sub("valueFrom")
	defer from.nothingLike(nil)
	switch {
	case from.has("configMapKeyRef"):
		conv.keyRef(it, from.sub("configMapKeyRef"), "ConfigMap", name, out)
	case from.has("secretKeyRef"):
		conv.keyRef(it, from.sub("secretKeyRef"), "Secret", name, out)
	case from.has("fieldRef"):
		conv.fieldRef(it, from.sub("fieldRef"), name, out)
	case from.has("resourceFieldRef"):
		if value, ok := it.resourceRef(container, from.sub("resourceFieldRef")); ok {
			out.Env[name] = value
		}
	}
}

// keyRef takes a variable that an entry of a ConfigMap or Secret has.
func (conv *kube) keyRef(it *pod, at *fields, kind, variable string, out *spec.Container) {
	name, key, optional := at.text("name", ""), at.text("key", ""), at.flag("optional", "")
	at.nothingLike(nil)
	obj := conv.find(kind, name)
	var value string
	there := false
	if obj != nil {
		value, there = conv.data(obj)[key]
	}
	switch {
	case !there && optional:
		at.approx("", "left out: there is no such %s in these files", kind)
	case kind == "Secret" && (obj == nil || there):
		it.secretEnv(at, name, key, variable, out)
		at.approx("", "envSecrets: %s", it.secretCommand(name))
	case !there:
		at.refuse("", "there is no %s %s with %s in these files: give it, too", kind, name, key)
	default:
		at.kept("", "env")
		out.Env[variable] = conv.peersIn(obj.fields, "data."+key, value)
	}
}

// kubeFields is a table: what a variable can have of the pod.
var kubeFields = map[string]spec.EnvField{
	"metadata.name": spec.FieldInstance, "metadata.uid": spec.FieldInstance, "metadata.namespace": spec.FieldNamespace,
	"spec.nodeName": spec.FieldWorker, "status.podIP": spec.FieldAddress, "status.podIPs": spec.FieldAddresses,
	"status.hostIP": spec.FieldHostAddress, "status.hostIPs": spec.FieldHostAddress,
}

// fieldRef takes a variable with a field of the pod.
func (conv *kube) fieldRef(it *pod, at *fields, variable string, out *spec.Container) {
	path := at.text("fieldPath", "")
	at.take("apiVersion")
	at.nothingLike(nil)
	name, key, _ := strings.Cut(strings.TrimSuffix(path, "']"), "['")
	field := kubeFields[path]
	switch {
	case field != "":
		if out.EnvFields[variable] = field; field == spec.FieldInstance {
			at.approx("", "envFields: the instance's ID; the number of a StatefulSet's pod is another field, ordinal")
		} else {
			at.kept("", "envFields")
		}
	case path == "spec.serviceAccountName":
		at.approx("", "env: default")
		out.Env[variable] = "default"
	case name == "metadata.labels" && key != "":
		at.kept("", "env")
		out.Env[variable] = it.load.labels[key]
	default:
		at.refuse("", "no variable has it")
	}
}

// resourceRef takes a variable with a limit of the container.
func (it *pod) resourceRef(container, at *fields) (string, bool) {
	resource, divisor, of := at.text("resource", ""), at.text("divisor", ""), at.text("containerName", "")
	at.nothingLike(nil)
	list, what, _ := strings.Cut(resource, ".")
	text := textAt(container.m, "resources", list, what)
	unit := 1.0
	if n, err := skerry.ParseBytes(strings.TrimSuffix(divisor, "m")); divisor != "" && err == nil && n > 0 {
		if unit = float64(n); strings.HasSuffix(divisor, "m") {
			unit /= 1000
		}
	}
	var amount float64
	switch what {
	case "cpu":
		n, err := skerry.ParseMilliCPU(text)
		if amount = float64(n) / 1000; err != nil {
			text = ""
		}
	case "memory", "ephemeral-storage":
		n, err := skerry.ParseBytes(text)
		if amount = float64(n); err != nil {
			text = ""
		}
	default:
		text = ""
	}
	if text == "" || of != "" && of != it.name {
		at.refuse("", "%s is not in this container's resources", resource)
		return "", false
	}
	value := strconv.FormatFloat(math.Ceil(amount/unit), 'f', -1, 64)
	at.approx("", "env: %s, as in the file", value)
	return value, true
}

// known gives the variables that texts may refer to: those before, and those that Kubernetes makes of Services.
func (conv *kube) known(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if value, ok := env[name]; ok {
			return value, true
		}
		for service, peer := range conv.peers {
			upper := strings.ToUpper(strings.ReplaceAll(service, "-", "_")) + "_SERVICE_"
			switch rest, ok := strings.CutPrefix(name, upper); {
			case ok && rest == "HOST":
				return peer.name, true
			case ok && rest == "PORT" && len(peer.list) > 0:
				return strconv.Itoa(peer.list[0]), true
			}
		}
		return "", false
	}
}

// reference is a variable in a text, one that is none, or a dollar sign that is none's.
var reference = late(`\$\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)|\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)`)

// expand puts the values of variables in their places, as Kubernetes does. What is not known stays, for the worker if it is
// known there. Each value may be several of another in turn, so what comes of it is refused beyond what a manifest can have.
func (conv *kube) expand(at *fields, key, text string, container *spec.Container) string {
	known := conv.known(container.Env)
	out := reference().ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "$$") {
			name := strings.Trim(found, "$()")
			if container.EnvFields[name] != "" || container.EnvSecrets[name] != "" {
				return found // the worker makes one of the two
			}
			return found[1:]
		}
		if value, ok := known(found[2 : len(found)-1]); ok && conv.expanded <= spec.MaxManifest {
			conv.expanded += len(value)
			return value
		}
		return found
	})
	if conv.expanded > spec.MaxManifest {
		at.refuse(key, "with the values of its variables it is larger than a manifest may be")
	}
	return out
}
