package apps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry/spec"
)

// beyond lists what of a service's change a site may not decide by itself: all but what leaves the service where it is, with the rights
// and the reach that its owner gave it. A captured site could otherwise give itself rights at other sites, by changing a service that may
// come to run there. A field that this function does not know is one of those: it takes from both what may differ, and compares the rest.
func beyond(was, is *spec.ServiceSpec) (fields []string) {
	privileged := slices.ContainsFunc(was.LevelNeeds(), func(n spec.LevelNeed) bool { return n.Level == spec.LevelPrivileged })
	a, b := fieldsOf(was, privileged), fieldsOf(is, privileged)
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if a[name] != b[name] {
			fields = append(fields, name)
		}
	}
	for _, n := range is.LevelNeeds() {
		if !slices.ContainsFunc(was.LevelNeeds(), func(o spec.LevelNeed) bool { return o.Path == n.Path && o.What == n.What && o.Level.Allows(n.Level) }) {
			fields = append(fields, fmt.Sprintf("%s (%s, level %s)", n.Path, n.What, n.Level))
		}
	}
	return fields
}

// fieldsOf gives, in JSON by name, the fields of a service that a site must leave as they are. Of a privileged one this is also what it
// runs, but for the image: it may do to its machine whatever its command says.
func fieldsOf(s *spec.ServiceSpec, privileged bool) map[string]string {
	var t spec.ServiceSpec
	_ = json.Unmarshal(mustJSON(s), &t)
	var none spec.ServiceSpec
	t.Replicas, t.Scale, t.Platforms, t.Pinned, t.Needs = nil, nil, nil, nil, nil
	t.Resources.CPU, t.Resources.Memory, t.Resources.Storage, t.Resources.Limits = 0, 0, 0, none.Resources.Limits
	t.Resources.BandwidthIn, t.Resources.BandwidthOut = 0, 0
	t.Restart, t.Update, t.TerminationGrace = none.Restart, none.Update, nil
	t.OnDisconnect, t.OnReconnect, t.Metrics, t.Logs = none.OnDisconnect, "", nil, none.Logs
	if !privileged {
		t.Probes, t.Config = none.Probes, nil
	}
	freely := func(k *spec.Container) {
		k.Image = repository(k.Image)
		if !privileged {
			k.Command, k.Args, k.Env, k.WorkingDir, k.StopSignal = nil, nil, nil, "", ""
		}
	}
	freely(&t.Container)
	for _, list := range [][]spec.SideContainer{t.Init, t.Sidecars} {
		for i := range list {
			freely(&list[i].Container)
			list[i].Resources.CPU, list[i].Resources.Memory = 0, 0
		}
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(mustJSON(&t), &fields)
	out := map[string]string{}
	for name, value := range fields {
		out[name] = string(value)
	}
	return out
}

// repository is an image's reference without its tag and digest.
func repository(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		ref = ref[:i]
	}
	return ref
}
