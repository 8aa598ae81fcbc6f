package pods

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// variables writes command, arguments and environment. Kubernetes replaces $(NAME), as Skerry does, but for every variable; so what Skerry
// knows is put in here, and what the kubelet alone knows (the address, secrets) is left to it. All other dollars are doubled, which it
// undoes.
func variables(container *PodContainer, from *spec.Container, assigned *spec.Assignment, node *Node, worker string) error {
	service := &assigned.Spec
	known := map[spec.EnvField]string{
		spec.FieldInstance: string(assigned.ID), spec.FieldOrdinal: strconv.Itoa(assigned.Ordinal), spec.FieldService: assigned.Service.Service,
		spec.FieldApp: assigned.Service.App.Name, spec.FieldNamespace: assigned.Service.App.Namespace, spec.FieldWorker: worker,
		spec.FieldHostAddress: address(node),
	}
	late := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(from.EnvFields)) {
		field := from.EnvFields[name]
		switch value, ok := known[field]; {
		case ok && value != "":
			late[name] = value
			container.Env = append(container.Env, envVar{Name: name, Value: literal(value)})
		case field == spec.FieldAddress, field == spec.FieldAddresses:
			late[name] = reference(name)
			at := map[spec.EnvField]string{spec.FieldAddress: "status.podIP", spec.FieldAddresses: "status.podIPs"}[field]
			container.Env = append(container.Env, envVar{Name: name, ValueFrom: &envSource{FieldRef: &fieldRef{at}}})
		default:
			return &Unsupported{"envFields " + string(field), "it is not known of this node"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(from.EnvSecrets)) {
		secret, file := from.EnvSecrets[name].Parts()
		i := slices.IndexFunc(service.Secrets, func(u spec.SecretUse) bool { return u.Name == secret })
		if i < 0 {
			return &Unsupported{"envSecrets " + name, "the service has no secret " + secret}
		}
		late[name] = reference(name)
		container.Env = append(container.Env, envVar{Name: name, ValueFrom: &envSource{SecretKey: &secretKey{filesName(assigned.ID, worker),
			secretKeyOf(i, file)}}})
	}
	expand := func(text string) (string, error) {
		text, err := spec.ExpandLate(text, late)
		if err != nil {
			return "", &Unsupported{"env", err.Error()}
		}
		return unmark(literal(text)), nil
	}
	all := map[string]string{
		"SKERRY_INSTANCE": string(assigned.ID), "SKERRY_SERVICE": assigned.Service.Service, "SKERRY_APP": assigned.Service.App.Name,
		"SKERRY_NAMESPACE": assigned.Service.App.Namespace, "SKERRY_ORDINAL": strconv.Itoa(assigned.Ordinal), "SKERRY_WORKER": worker,
		spec.EnvEndpoints: endpointsAt + "/" + endpoints,
	}
	maps.Copy(all, from.Env)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, err := expand(all[name])
		if err != nil {
			return err
		}
		container.Env = append(container.Env, envVar{Name: name, Value: value})
	}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{from.Command, &container.Command}, {from.Args, &container.Args}} {
		for _, text := range list.from {
			value, err := expand(text)
			if err != nil {
				return err
			}
			*list.to = append(*list.to, value)
		}
	}
	return nil
}

// The bytes around a name that the kubelet is to replace; no text of a manifest can have them, for no variable or argument has a zero byte.
const (
	markBegin = "\x00("
	markEnd   = ")\x00"
)

func reference(name string) string { return markBegin + name + markEnd }

func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

func unmark(text string) string {
	return strings.NewReplacer(markBegin, "$(", markEnd, ")").Replace(text)
}
