//go:build linux

package worker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// lateVariables gives the variables whose values are known only when an instance starts, on a worker of that name and address.
func lateVariables(task *runtime.Spec, assigned *spec.Assignment, container *spec.Container, worker, host string,
	open func(skerry.InstanceID, spec.SecretName) (spec.SecretValue, error)) (map[string]string, error) {
	out := map[string]string{}
	addresses := []string{host} // of an instance without a network of its own
	if task.Network != nil && len(task.Network.Addresses) > 0 {
		addresses = addresses[:0]
		for _, a := range task.Network.Addresses {
			addresses = append(addresses, a.Addr().String())
		}
	}
	known := map[spec.EnvField]string{
		spec.FieldInstance: string(assigned.ID), spec.FieldOrdinal: strconv.Itoa(assigned.Ordinal),
		spec.FieldService: assigned.Service.Service, spec.FieldApp: assigned.Service.App.Name,
		spec.FieldNamespace: assigned.Service.App.Namespace, spec.FieldWorker: worker, spec.FieldAddress: addresses[0],
		spec.FieldAddresses: strings.Join(addresses, ","), spec.FieldHostAddress: host,
	}
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
		case slices.Contains(data, 0):
			return nil, &runtime.InvalidSpec{Field: "envSecrets." + name, Reason: fmt.Sprintf("%s holds a zero byte, which no variable can; "+
				"read the file instead", ref)}
		}
		out[name] = string(data)
	}
	return out, nil
}
