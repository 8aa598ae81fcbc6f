package pods

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Unsupported says what of an assignment cannot be done by a pod. The cluster then looks for another place.
type Unsupported struct{ What, Why string }

func (u *Unsupported) Error() string { return "unsupported: " + u.What + ": " + u.Why }

// What labels and annotations of our objects are called. Labels are for selecting, and have bounded values; what must be exact is
// annotated.
const (
	managedLabel  = "app.kubernetes.io/managed-by"
	managedBy     = "skerry-kubernetes"
	siteLabel     = "skerry.dev/site"
	workerLabel   = "skerry.dev/worker"
	appLabel      = "skerry.dev/app"
	serviceLabel  = "skerry.dev/service"
	instanceNote  = "skerry.dev/instance"
	fenceNote     = "skerry.dev/fence"
	attemptNote   = "skerry.dev/attempt"
	restartNote   = "skerry.dev/restart"
	preparedNote  = "skerry.dev/prepared"
	mainContainer = spec.MainContainer
)

// refuse says what of an assignment cannot be done by a pod; nil: nothing. The site places no such service here as far as abilities and
// features of the worker show it; a site of before may.
func refuse(assigned *spec.Assignment) error {
	service := &assigned.Spec
	no := func(what, why string) error { return &Unsupported{what, why} }
	_, stops := service.OnDisconnect.StopAfter()
	rt := assigned.Runtime
	if rt == "" && slices.Contains(service.Runtimes(), spec.RuntimeOCI) {
		rt = spec.RuntimeOCI
	}
	switch {
	case rt != spec.RuntimeOCI:
		return no("runtime "+assigned.Runtime, "pods run containers (runtime oci)")
	case service.Image == "":
		return no("image", "a pod needs one")
	case len(service.Devices) > 0, len(assigned.Devices) > 0:
		return no("devices", "Kubernetes gives devices by its own plugins")
	case service.LimitsIO():
		return no("resources.io", "Kubernetes has no limits of reading and writing")
	case stops:
		return no("onDisconnect stopAfter", "nothing ends a pod for sure while this agent is away")
	case len(assigned.Signers) > 0:
		return no("signatures", "the node's kubelet pulls the image, and does not check who signed it")
	case assigned.Egress != nil:
		return no("egress", "a network policy would be Kubernetes' to enforce")
	case len(spec.ServicePortsOf(service)) > 0:
		return no("servicePort", "the pod's network is Kubernetes'")
	}
	if f := spec.LackedFeature(service, features()); f != "" && f != spec.FeatureAliases {
		return no(f, "pods are not given it")
	}
	for _, v := range service.Volumes {
		if v.Empty == nil && v.Local == nil {
			return no("volume "+v.Name, "only empty and local volumes are offered")
		}
	}
	for _, it := range containersOf(service) {
		if asked := &it.Resources; asked.ExclusiveCPUs > 0 || asked.HugePages != (spec.HugePages{}) || asked.TPUs > 0 ||
			asked.BandwidthIn > 0 || asked.BandwidthOut > 0 {
			return no("resources", "of resources, cpu, memory, storage and gpus are given to pods")
		}
		switch strings.TrimPrefix(strings.ToUpper(it.StopSignal), "SIG") {
		case "", "TERM", "15":
		default:
			return no("stopSignal "+it.StopSignal, "Kubernetes sends the image's, or SIGTERM")
		}
		if hook := it.PostStart; hook != nil && wholeSeconds(time.Duration(hook.Sleep)) > grace(service) {
			return no("postStart that sleeps", "Kubernetes lets it take no longer than terminationGrace")
		}
		if it.Image == "" {
			return no("image", "a pod needs one for container "+it.Name)
		}
		if _, err := usersOf(it.User); err != nil {
			return err
		}
	}
	return nil
}

// containersOf gives all containers of a service in the order in which they start: main is the last.
func containersOf(service *spec.ServiceSpec) []spec.SideContainer {
	main := spec.SideContainer{Name: mainContainer, Container: service.Container, Resources: service.Resources}
	return append(slices.Concat(service.Init, service.Sidecars), main)
}

// usersOf reads USER or USER:GROUP as numbers.
func usersOf(text string) (out [2]*int64, err error) {
	if text == "" {
		return out, nil
	}
	user, group, both := strings.Cut(text, ":")
	for i, part := range []string{user, group} {
		if i == 1 && !both {
			break
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n < 0 || n > 1<<31-1 {
			return out, &Unsupported{"user " + text, "a pod takes users and groups by number alone"}
		}
		out[i] = &n
	}
	return out, nil
}

// Style is how pods are made, for all of them.
type Style struct {
	Namespace string // of Kubernetes
	Site      string // whose pods they are
	// Registry, if set, is where images come from whose name has no registry; else docker.io, as everywhere.
	Registry string
	// StorageClass is that of claims for local volumes; empty: the cluster's default.
	StorageClass string
	PullSecret   string // name of a secret of the namespace with which images are pulled; empty: none
	Priority     string // class of all pods; empty: the default
}

// podName names the pod of an attempt. Another token, worker or attempt gives another name.
func podName(a *spec.Assignment, worker string, attempt int) string {
	f := a.Fence
	return fmt.Sprintf("%s-%s-%d", short(string(a.ID)), mark(string(a.ID), worker, fmt.Sprint(f.RootEpoch, f.ClusterTerm, f.Sequence)),
		attempt)
}

// filesName names the secret with the files of an instance on a worker.
func filesName(id skerry.InstanceID, worker string) string {
	return fmt.Sprintf("%s-%s-files", short(string(id)), mark(string(id), worker))
}

// short makes the beginning of a name of a pod of any text.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		}
		return '-'
	}, s)
	if len(s) > 36 {
		s = s[:36]
	}
	if s = strings.Trim(s, "-"); s == "" {
		return "x"
	}
	return s
}

// labelValue makes a value of a label of any text.
func labelValue(s string) string {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
	}
	if len(s) <= 63 && strings.IndexFunc(s, func(r rune) bool { return !ok(r) }) < 0 && s == strings.Trim(s, "-_.") {
		return s
	}
	return short(s) + "-" + mark(s)
}

// metadata names an object of an instance, and whose it is.
func (st *Style) metadata(name, worker string, a *spec.Assignment) Meta {
	return Meta{Name: name, Namespace: st.Namespace,
		Labels: map[string]string{managedLabel: managedBy, siteLabel: labelValue(st.Site), workerLabel: labelValue(worker),
			appLabel: labelValue(a.Service.App.Namespace + "." + a.Service.App.Name), serviceLabel: labelValue(a.Service.Service)},
		Annotations: map[string]string{instanceNote: string(a.ID)}}
}

// pod describes the pod of an attempt to run an instance on a node.
func (st *Style) pod(assigned *spec.Assignment, attempt int, node *Node, worker string, ports []wire.PortBinding) (*Pod, error) {
	service := &assigned.Spec
	made := &Pod{APIVersion: "v1", Kind: "Pod", Metadata: st.metadata(podName(assigned, worker, attempt), worker, assigned)}
	fence := fmt.Sprintf("%d.%d.%d", assigned.Fence.RootEpoch, assigned.Fence.ClusterTerm, assigned.Fence.Sequence)
	maps.Copy(made.Metadata.Annotations, map[string]string{fenceNote: fence, attemptNote: strconv.Itoa(attempt),
		restartNote: strconv.FormatUint(assigned.Restart, 10)})
	no := false
	within := grace(service)
	made.Spec = PodSpec{RestartPolicy: "Never", Grace: &within, AutomountToken: &no, ServiceLinks: &no, PriorityClassName: st.Priority,
		Tolerations: tolerated(node, service.Placement.Tolerations),
		Affinity: &affinity{nodeAffinity{nodeSelector{[]nodeTerm{{[]requirement{
			{Key: "metadata.name", Operator: "In", Values: []string{node.Metadata.Name}}}}}}}}}
	if st.PullSecret != "" {
		made.Spec.ImagePullSecrets = []nameRef{{st.PullSecret}}
	}
	for _, h := range service.ExtraHosts {
		made.Spec.HostAliases = append(made.Spec.HostAliases, hostAlias{h.Address.String(), h.Names})
	}
	st.volumes(made, assigned, worker)
	for at, it := range containersOf(service) {
		container, err := st.container(&it, assigned, node, worker)
		if err != nil {
			return nil, err
		}
		if it.Name != mainContainer {
			if at >= len(service.Init) {
				container.RestartPolicy = always
			}
			made.Spec.InitContainers = append(made.Spec.InitContainers, container)
			continue
		}
		for i, b := range ports {
			container.Ports = append(container.Ports, podPort{Name: fmt.Sprintf("p%d", i), ContainerPort: b.Port, HostPort: b.HostPort,
				Protocol: strings.ToUpper(b.Protocol)})
		}
		container.StartupProbe, container.ReadinessProbe, container.LivenessProbe = probe(service.Probes.Startup),
			probe(service.Probes.Readiness), probe(service.Probes.Liveness)
		made.Spec.Containers = []PodContainer{container}
	}
	return made, nil
}

// wholeSeconds rounds up: Kubernetes counts nothing less.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// grace is how long, in seconds, the containers of a service may take to end.
func grace(service *spec.ServiceSpec) int64 {
	if service.TerminationGrace != nil {
		return wholeSeconds(time.Duration(*service.TerminationGrace))
	}
	return wholeSeconds(spec.DefaultGrace)
}

// always makes an init container a sidecar: it starts before those that follow, runs beside them and ends after them.
const always = "Always"

// container describes one container of an instance.
func (st *Style) container(it *spec.SideContainer, assigned *spec.Assignment, node *Node, worker string) (made PodContainer, err error) {
	made = PodContainer{Name: it.Name, WorkingDir: it.WorkingDir, TTY: it.TTY, Stdin: it.TTY, PullPolicy: "IfNotPresent",
		Resources: resources(assigned.Level, it.Resources), VolumeMounts: mounts(&it.Container, &assigned.Spec)}
	if made.Image, err = st.image(it.Image, assigned.Digest); err != nil {
		return made, err
	}
	made.Lifecycle = hooks(&it.Container, grace(&assigned.Spec))
	if made.Security, err = security(&it.Container, assigned.Level); err != nil {
		return made, err
	}
	return made, variables(&made, &it.Container, assigned, node, worker)
}

// image gives an image, by the digest that the site has settled on.
func (st *Style) image(wanted string, digests map[string]string) (string, error) {
	named, err := imageref.Parse(wanted)
	if err != nil {
		return "", &Unsupported{"image", err.Error()}
	}
	if pinned := digests[wanted]; pinned != "" {
		if r, err := imageref.Parse(pinned); err == nil && r.Digest != "" {
			named = named.Pinned(r.Digest)
		}
	}
	text := named.String()
	if rest, ok := strings.CutPrefix(text, imageref.DefaultRegistry+"/"); ok && st.Registry != "" {
		if !strings.Contains(wanted, "/") {
			rest = strings.TrimPrefix(rest, "library/")
		}
		text = st.Registry + "/" + rest
	}
	return text, nil
}

// resources are the guaranteed amounts, which the site has reserved, and the most that the container may use. Where something has a bound
// and nothing is asked for, that is said: Kubernetes would take the bound for a request.
func resources(level spec.SecurityLevel, asked spec.Resources) podResources {
	bound := level.Enforced(asked, spec.RuntimeOCI)
	out := podResources{map[string]text{}, map[string]text{}}
	set := func(name string, request, limit int64, unit string) {
		if limit > 0 {
			out.Requests[name], out.Limits[name] = text(strconv.FormatInt(request, 10)+unit), text(strconv.FormatInt(limit, 10)+unit)
		}
	}
	set("cpu", int64(asked.CPU), int64(bound.MostCPU()), "m")
	set("memory", int64(asked.Memory), int64(bound.MostMemory()), "")
	set("ephemeral-storage", int64(asked.Storage), int64(bound.Storage), "")
	set(gpuResource, int64(asked.GPUs), int64(asked.GPUs), "")
	return out
}

// security holds the container to the level of its organisation. The site has looked at the manifest; what it leaves to the worker is what
// a container has without asking.
func security(container *spec.Container, level spec.SecurityLevel) (*podSecurity, error) {
	service := container.Security
	users, err := usersOf(container.User)
	if err != nil {
		return nil, err
	}
	out := &podSecurity{Privileged: service.Privileged, ReadOnlyRoot: service.ReadOnlyRoot, RunAsUser: users[0], RunAsGroup: users[1],
		Capabilities: &capabilities{}}
	for _, name := range service.AddCaps {
		out.Capabilities.Add = append(out.Capabilities.Add, spec.CapName(name))
	}
	for _, name := range service.DropCaps {
		out.Capabilities.Drop = append(out.Capabilities.Drop, spec.CapName(name))
	}
	restricted := !service.Privileged && level != "" && level != spec.LevelPrivileged && level != spec.LevelBaseline
	if restricted {
		out.Capabilities.Drop = []string{"ALL"}
	}
	if service.Seccomp == "unconfined" {
		out.Seccomp = &seccomp{"Unconfined"}
	} else if !service.Privileged {
		out.Seccomp = &seccomp{"RuntimeDefault"}
	}
	// The API server refuses SYS_ADMIN together with no escalation.
	escalate := service.NewPrivs || service.Privileged || slices.Contains(out.Capabilities.Add, "SYS_ADMIN")
	out.AllowEscalation = &escalate
	return out, nil
}

// probe is a probe of Kubernetes, which the node's kubelet tries.
func probe(pod *spec.Probe) map[string]any {
	if pod == nil {
		return nil
	}
	seconds := func(d spec.Duration, least int64) int64 {
		return max(least, wholeSeconds(time.Duration(d)))
	}
	out := map[string]any{"initialDelaySeconds": seconds(pod.InitialDelay, 0), "periodSeconds": seconds(pod.Interval, 1),
		"timeoutSeconds": seconds(pod.Timeout, 1), "failureThreshold": max(pod.Failures, 1), "successThreshold": max(pod.Successes, 1)}
	switch {
	case pod.HTTP != nil:
		out["httpGet"] = get(pod.HTTP)
	case pod.TCP != nil:
		out["tcpSocket"] = map[string]any{"port": pod.TCP.Port}
	case pod.Exec != nil: // the kubelet replaces $(NAME) in it
		command := []string{}
		for _, word := range pod.Exec.Command {
			command = append(command, literal(word))
		}
		out["exec"] = map[string]any{"command": command}
	}
	return out
}

// get is an HTTP request of the kubelet's.
func get(asked *spec.HTTPProbe) map[string]any {
	headers := []map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(asked.Headers)) {
		headers = append(headers, map[string]string{"name": k, "value": asked.Headers[k]})
	}
	return map[string]any{"path": asked.Path, "port": asked.Port, "httpHeaders": headers}
}

// Where the files of an instance appear.
const (
	filesVolume = "skerry-files"
	endpointsAt = "/run/skerry"
	endpoints   = "endpoints.json"
)

// volumes adds volumes, and those that hold files.
func (st *Style) volumes(pod *Pod, assigned *spec.Assignment, worker string) {
	service := &assigned.Spec
	for _, v := range service.Volumes {
		if v.Local != nil {
			pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: volumeName(v.Name),
				Claim: &claimVolume{st.claimName(worker, volumeClaim(assigned, v.Name))}})
			pod.Spec.Security = &allSecurity{volumeGroup, "OnRootMismatch"}
			continue
		}
		e := &emptyDir{}
		if v.Empty.Memory {
			e.Medium = "Memory"
		}
		if v.Empty.Size > 0 {
			e.SizeLimit = strconv.FormatInt(int64(v.Empty.Size), 10)
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: volumeName(v.Name), EmptyDir: e})
	}
	files := filesName(assigned.ID, worker)
	from := &secretVolume{SecretName: files, Items: []keyPath{{Key: endpoints, Path: endpoints, Mode: 0o444}}}
	pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: filesVolume, Secret: from})
	for i, f := range service.Config {
		mode, err := strconv.ParseUint(f.Mode, 8, 9)
		if err != nil {
			mode = 0o444
		}
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: fmt.Sprintf("c-%d", i), Secret: &secretVolume{SecretName: files,
			Items: []keyPath{{Key: configKey(i), Path: path.Base(f.Path), Mode: int(mode)}}}})
	}
	for i := range service.Secrets {
		// The items are those that the secret had when it was fetched: all whose keys begin so. They are filled in by the caller.
		pod.Spec.Volumes = append(pod.Spec.Volumes, volume{Name: fmt.Sprintf("s-%d", i), Secret: &secretVolume{SecretName: files}})
	}
}

// mounts are where a container finds its volumes, and the files that every container of an instance has.
func mounts(container *spec.Container, service *spec.ServiceSpec) (out []volumeMount) {
	for _, m := range container.Mounts {
		out = append(out, volumeMount{Name: volumeName(m.Volume), MountPath: m.Path, SubPath: m.SubPath, ReadOnly: m.ReadOnly})
	}
	out = append(out, volumeMount{Name: filesVolume, MountPath: endpointsAt, ReadOnly: true})
	for i, f := range service.Config {
		out = append(out, volumeMount{Name: fmt.Sprintf("c-%d", i), MountPath: f.Path, SubPath: path.Base(f.Path), ReadOnly: true})
	}
	for i := range service.Secrets {
		out = append(out, volumeMount{Name: fmt.Sprintf("s-%d", i), MountPath: service.Secrets[i].Path, ReadOnly: true})
	}
	return out
}

func configKey(i int) string { return fmt.Sprintf("config.%d", i) }

func secretKeyOf(i int, file string) string { return fmt.Sprintf("secret.%d.%s", i, file) }

// fillSecrets names the files of secrets in a pod's volumes, by what the instance's files have.
func fillSecrets(p *Pod, a *spec.Assignment, keys []string) {
	for i := range a.Spec.Secrets {
		prefix := secretKeyOf(i, "")
		for v := range p.Spec.Volumes {
			if p.Spec.Volumes[v].Name != fmt.Sprintf("s-%d", i) {
				continue
			}
			for _, k := range keys {
				if file, ok := strings.CutPrefix(k, prefix); ok {
					p.Spec.Volumes[v].Secret.Items = append(p.Spec.Volumes[v].Secret.Items,
						keyPath{Key: k, Path: file, Mode: int(a.Spec.Secrets[i].FileMode())})
				}
			}
		}
	}
}
