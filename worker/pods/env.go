package pods

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

// variables writes command, arguments and environment. Kubernetes replaces $(NAME), as Skerry does, but for every variable; so what Skerry
// knows is put in here, and what the kubelet alone knows (the address, secrets) is left to it. All other dollars are doubled, which it undoes.
func variables(c *PodContainer, a *spec.Assignment, node *Node, worker string) error {
	s := &a.Spec
	known := map[spec.EnvField]string{
		spec.FieldInstance: string(a.ID), spec.FieldOrdinal: strconv.Itoa(a.Ordinal), spec.FieldService: a.Service.Service,
		spec.FieldApp: a.Service.App.Name, spec.FieldNamespace: a.Service.App.Namespace, spec.FieldWorker: worker,
		spec.FieldHostAddress: address(node),
	}
	late := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.EnvFields)) {
		field := s.EnvFields[name]
		switch value, ok := known[field]; {
		case ok && value != "":
			late[name] = value
			c.Env = append(c.Env, envVar{Name: name, Value: literal(value)})
		case field == spec.FieldAddress, field == spec.FieldAddresses:
			late[name] = reference(name)
			from := map[spec.EnvField]string{spec.FieldAddress: "status.podIP", spec.FieldAddresses: "status.podIPs"}[field]
			c.Env = append(c.Env, envVar{Name: name, ValueFrom: &envSource{FieldRef: &fieldRef{from}}})
		default:
			return &Unsupported{"envFields " + string(field), "it is not known of this node"}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.EnvSecrets)) {
		secret, file := s.EnvSecrets[name].Parts()
		i := slices.IndexFunc(s.Secrets, func(u spec.SecretUse) bool { return u.Name == secret })
		if i < 0 {
			return &Unsupported{"envSecrets " + name, "the service has no secret " + secret}
		}
		late[name] = reference(name)
		c.Env = append(c.Env, envVar{Name: name, ValueFrom: &envSource{SecretKey: &secretKey{filesName(a.ID, worker), secretKeyOf(i, file)}}})
	}
	expand := func(text string) (string, error) {
		text, err := spec.ExpandLate(text, late)
		if err != nil {
			return "", &Unsupported{"env", err.Error()}
		}
		return unmark(literal(text)), nil
	}
	all := map[string]string{
		"SKERRY_INSTANCE": string(a.ID), "SKERRY_SERVICE": a.Service.Service, "SKERRY_APP": a.Service.App.Name,
		"SKERRY_NAMESPACE": a.Service.App.Namespace, "SKERRY_ORDINAL": strconv.Itoa(a.Ordinal), "SKERRY_WORKER": worker,
		spec.EnvEndpoints: endpointsAt + "/" + endpoints,
	}
	maps.Copy(all, s.Env)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, err := expand(all[name])
		if err != nil {
			return err
		}
		c.Env = append(c.Env, envVar{Name: name, Value: value})
	}
	for _, list := range []struct {
		from []string
		to   *[]string
	}{{s.Command, &c.Command}, {s.Args, &c.Args}} {
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
