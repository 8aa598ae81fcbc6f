//go:build linux

package worker

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
)

// environment gives a container its variables: the image's, then what Skerry says, then the manifest's; a later one wins. What is known
// only now is put into the command line, too. The task must have its command and its network.
func (s *Server) environment(task *runtime.Spec, assigned *spec.Assignment, container *spec.Container, img artifact.Image,
	driver string) error {
	endpoints := runDir + "/" + endpointsFile
	if driver == spec.RuntimeNative {
		endpoints = filepath.Join(s.instanceDir(assigned.ID), "run", endpointsFile)
	}
	vars := map[string]string{}
	for _, e := range img.Env {
		if n, v, ok := strings.Cut(e, "="); ok {
			vars[n] = v
		}
	}
	maps.Copy(vars, map[string]string{
		"SKERRY_INSTANCE": string(assigned.ID), "SKERRY_SERVICE": assigned.Service.Service, "SKERRY_APP": assigned.Service.App.Name,
		"SKERRY_NAMESPACE": assigned.Service.App.Namespace, "SKERRY_ORDINAL": strconv.Itoa(assigned.Ordinal), "SKERRY_WORKER": s.opt.Name,
		spec.EnvEndpoints: endpoints, "HOSTNAME": hostname(assigned.ID),
	})
	late, err := s.lateVariables(task, assigned, container)
	if err != nil {
		return err
	}
	for name, text := range container.Env {
		if vars[name], err = spec.ExpandLate(text, late); err != nil {
			return &runtime.InvalidSpec{Field: "env." + name, Reason: err.Error()}
		}
	}
	maps.Copy(vars, late)
	if len(container.Command)+len(container.Args) > 0 { // what the image says stays as it is
		for i := range task.Args {
			if task.Args[i], err = spec.ExpandLate(task.Args[i], late); err != nil {
				return &runtime.InvalidSpec{Field: "args", Reason: err.Error()}
			}
		}
	}
	if vars["PATH"] == "" {
		vars["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	}
	for n, v := range vars {
		task.Env = append(task.Env, n+"="+v)
	}
	slices.Sort(task.Env)
	return nil
}

// lateVariables gives the variables whose values are known only when an instance starts.
func (s *Server) lateVariables(task *runtime.Spec, assigned *spec.Assignment, container *spec.Container) (map[string]string, error) {
	out := map[string]string{}
	host := s.hostAddress()
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
		spec.FieldNamespace: assigned.Service.App.Namespace, spec.FieldWorker: s.opt.Name, spec.FieldAddress: addresses[0],
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
		value, err := s.openSecret(assigned.ID, names[i])
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

// hostAddress is the address at which host ports of this worker are reached, or empty if it is not known.
func (s *Server) hostAddress() string {
	if s.opt.Facts.Address != "" {
		return s.opt.Facts.Address
	}
	return outboundAddress(s.opt.Addrs)
}
