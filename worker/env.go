//go:build linux

package worker

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// longestVariable is what Linux takes of one, with its name and the zero byte at its end: 32 pages of the smallest size.
const longestVariable = 128 << 10

// lateVariables gives the variables whose values are known only when an instance starts, on a worker of that name. Its address is asked for
// only where it is needed: it may have to be looked up by name.
func lateVariables(task *runtime.Spec, assigned *spec.Assignment, container *spec.Container, driver, worker string, host func() string,
	open func(skerry.InstanceID, spec.SecretName) (spec.SecretValue, error)) (map[string]string, error) {
	out := map[string]string{}
	var addresses []string
	if task.Network != nil {
		for _, a := range task.Network.Addresses {
			addresses = append(addresses, a.Addr().String())
		}
	}
	known := map[spec.EnvField]string{
		spec.FieldInstance: string(assigned.ID), spec.FieldOrdinal: strconv.Itoa(assigned.Ordinal),
		spec.FieldService: assigned.Service.Service, spec.FieldApp: assigned.Service.App.Name,
		spec.FieldNamespace: assigned.Service.App.Namespace, spec.FieldWorker: worker,
	}
	asked := slices.Collect(maps.Values(container.EnvFields))
	addressless := len(addresses) == 0 && (slices.Contains(asked, spec.FieldAddress) || slices.Contains(asked, spec.FieldAddresses))
	if addressless && driver != spec.RuntimeNative && driver != spec.RuntimeWasm {
		return nil, &runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: driver,
			Reason: "envFields: it has no address, since this worker gives no networks (--no-network); choose another worker"}
	}
	if addressless || slices.Contains(asked, spec.FieldHostAddress) {
		known[spec.FieldHostAddress] = host()
	}
	if len(addresses) == 0 { // a process in the host's network
		addresses = []string{known[spec.FieldHostAddress]}
	}
	known[spec.FieldAddress], known[spec.FieldAddresses] = addresses[0], strings.Join(addresses, ",")
	for name, field := range container.EnvFields {
		value, ok := known[field]
		if !ok {
			return nil, &runtime.InvalidSpec{Field: "envFields." + name, Reason: fmt.Sprintf("this worker knows no field %q", field)}
		}
		if value == "" {
			return nil, &runtime.InvalidSpec{Field: "envFields." + name, Reason: fmt.Sprintf("this worker does not know %s; "+
				"give it its address (--address)", field)}
		}
		out[name] = value
	}
	names := assigned.Spec.SecretNames(assigned.Service.App.Namespace)
	for name, ref := range container.EnvSecrets {
		secret, file := ref.Parts()
		i := slices.IndexFunc(names, func(n spec.SecretName) bool { return n.Name == secret })
		if i < 0 {
			return nil, &runtime.InvalidSpec{Field: "envSecrets." + name, Reason: "the service has no secret " + secret}
		}
		value, err := open(assigned.ID, names[i])
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", secret, err)
		}
		data, ok := value[file]
		switch {
		case !ok:
			return nil, &runtime.InvalidSpec{Field: "envSecrets." + name, Reason: fmt.Sprintf("the secret %s has no file %s", secret, file)}
		case len(name)+len(data)+len("=\x00") > longestVariable:
			return nil, &runtime.InvalidSpec{Field: "envSecrets." + name, Reason: fmt.Sprintf("%s has %d bytes, more than a variable can have; "+
				"read the file instead", ref, len(data))}
		case slices.Contains(data, 0) || !utf8.Valid(data): // what runtimes write down as JSON would have other bytes in their place
			return nil, &runtime.InvalidSpec{Field: "envSecrets." + name, Reason: fmt.Sprintf("%s holds a zero byte, or bytes that are not "+
				"UTF-8, which no variable can; read the file instead", ref)}
		}
		out[name] = string(data)
	}
	return out, nil
}
