package pods

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Labels of nodes that mean something here.
const (
	regionLabel = "topology.kubernetes.io/region"
	zoneLabel   = "topology.kubernetes.io/zone"
	archLabel   = "kubernetes.io/arch"
)

// gpuResource is the extended resource that stands for a GPU.
const gpuResource = "nvidia.com/gpu"

// need is what a pod takes of its node.
type need struct {
	node      string
	resources spec.Resources
	ports     []string // as PROTOCOL/NUMBER, of the host
}

// needOf adds up what a pod takes: the greater one of its containers together with sidecars and of each init container, as Kubernetes
// counts.
func needOf(pod *Pod) need {
	out := need{node: pod.Spec.NodeName}
	if pod.Status.Phase == "Succeeded" || pod.Status.Phase == "Failed" {
		return out // it takes nothing any more
	}
	sum := func(into *spec.Resources, asked spec.Resources) {
		into.CPU, into.Memory, into.Storage = plus(into.CPU, asked.CPU), plus(into.Memory, asked.Memory), plus(into.Storage, asked.Storage)
		into.GPUs = int(min(int64(into.GPUs)+int64(asked.GPUs), math.MaxInt32))
	}
	runs := func(ctr *PodContainer) {
		sum(&out.resources, amounts(ctr.Resources.Requests))
		for _, port := range ctr.Ports {
			host := port.HostPort
			if pod.Spec.HostNetwork {
				host = port.ContainerPort
			}
			if host > 0 && host < 1<<16 {
				out.ports = append(out.ports, hostPort(port.Protocol, host))
			}
		}
	}
	var most spec.Resources // of an init container with the sidecars that were started before it
	for i := range pod.Spec.InitContainers {
		ctr := &pod.Spec.InitContainers[i]
		if ctr.RestartPolicy == always {
			runs(ctr)
			continue
		}
		asked := amounts(ctr.Resources.Requests)
		sum(&asked, out.resources)
		most = greater(most, asked)
	}
	for i := range pod.Spec.Containers {
		runs(&pod.Spec.Containers[i])
	}
	out.resources = greater(out.resources, most)
	sum(&out.resources, amounts(pod.Spec.Overhead))
	return out
}

// greater takes the greater one of each amount that pods ask for.
func greater(one, two spec.Resources) spec.Resources {
	return spec.Resources{CPU: max(one.CPU, two.CPU), Memory: max(one.Memory, two.Memory), Storage: max(one.Storage, two.Storage),
		GPUs: max(one.GPUs, two.GPUs)}
}

// thin leaves of a pod of another namespace what needOf reads: how much there is of the rest is up to others.
func (f *Fleet) thin(pod *Pod) {
	meta, from := &pod.Metadata, &pod.Spec
	if meta.Namespace == f.opt.Style.Namespace {
		return
	}
	out := Pod{Metadata: Meta{Name: meta.Name, Namespace: meta.Namespace, UID: meta.UID, ResourceVersion: meta.ResourceVersion},
		Status: PodStatus{Phase: pod.Status.Phase}}
	out.Spec = PodSpec{NodeName: from.NodeName, HostNetwork: from.HostNetwork, Overhead: counted(from.Overhead),
		Containers: thinContainers(from.Containers), InitContainers: thinContainers(from.InitContainers)}
	*pod = out
}

func thinContainers(list []PodContainer) (out []PodContainer) {
	for i := range list {
		out = append(out, PodContainer{RestartPolicy: list[i].RestartPolicy, Ports: list[i].Ports,
			Resources: podResources{Requests: counted(list[i].Resources.Requests)}})
	}
	return out
}

// counted are the amounts that are read of a list.
func counted(list map[string]text) map[string]text {
	out := map[string]text{}
	for _, name := range []string{"cpu", "memory", "ephemeral-storage", gpuResource} {
		if value, ok := list[name]; ok {
			out[name] = value
		}
	}
	return out
}

// plus adds amounts that may be anything.
func plus[T ~int64](a, b T) T {
	if a > most-b {
		return most
	}
	return a + b
}

// most bounds an amount: more than any machine has, and far from what overflows.
const most = 1 << 60

func hostPort(protocol string, port int) string {
	if protocol == "" {
		protocol = "TCP"
	}
	return fmt.Sprintf("%s/%d", strings.ToLower(protocol), port)
}

// amounts reads quantities. One that cannot be read, or is negative, is nothing.
func amounts(list map[string]text) spec.Resources {
	return spec.Resources{CPU: skerry.MilliCPU(quantity(list["cpu"], true)), Memory: skerry.Bytes(quantity(list["memory"], false)),
		Storage: skerry.Bytes(quantity(list["ephemeral-storage"], false)), GPUs: int(min(quantity(list[gpuResource], false), math.MaxInt32))}
}

// readQuantity reads a quantity. One that cannot be read, or is negative, is none.
func readQuantity(value text) (q resource.Quantity, ok bool) {
	if value == "" || len(value) > 64 {
		return q, false
	}
	q, err := resource.ParseQuantity(string(value))
	return q, err == nil && q.Sign() >= 0
}

func quantity(value text, milli bool) int64 {
	q, ok := readQuantity(value)
	if !ok {
		return 0
	}
	if whole := q.Value(); whole > most/1000 {
		return most
	}
	if milli {
		return q.MilliValue()
	}
	return q.Value()
}

// facts describes a node to its site: what is allocatable there, less what the pods of others take.
func facts(node *Node, others []need, version, noSidecars, noVolumes string) wire.WorkerFacts {
	told := wire.WorkerFacts{External: External, OS: node.Status.NodeInfo.OperatingSystem, Kernel: clean(node.Status.NodeInfo.KernelVersion,
		100),
		Version: version, Address: address(node), Labels: labels(node), Area: area(node), Levels: true, Features: features()}
	if told.Arch = node.Status.NodeInfo.Architecture; told.Arch == "" {
		told.Arch = node.Metadata.Labels[archLabel]
	}
	given := map[string]text{}
	for k, v := range node.Status.Allocatable {
		given[k] = text(v)
	}
	told.Capacity = amounts(given)
	for i := range others {
		r := &others[i].resources
		told.Capacity.CPU, told.Capacity.Memory = max(0, told.Capacity.CPU-r.CPU), max(0, told.Capacity.Memory-r.Memory)
		told.Capacity.Storage, told.Capacity.GPUs = max(0, told.Capacity.Storage-r.Storage), max(0, told.Capacity.GPUs-r.GPUs)
	}
	for _, t := range node.Spec.Taints {
		if keepsAway(t) {
			told.Taints = append(told.Taints, taintText(t))
		}
	}
	can, cause := abilities(), "pods have the users of their node"
	if noSidecars == "" {
		can = append(can, "sidecars")
	} else {
		cause += "; no sidecars: " + noSidecars
	}
	if noVolumes == "" {
		can = append(can, "localVolumes")
	} else {
		cause += "; no local volumes: " + noVolumes
	}
	slices.Sort(can)
	told.Runtimes = []wire.RuntimeReport{{Name: spec.RuntimeOCI, Passed: true, Abilities: can, Cause: cause,
		Version: clean(node.Status.NodeInfo.ContainerRuntimeVersion, 100)}}
	return told
}

// External is the kind of agent that this one calls itself.
const External = "kubernetes"

// abilities are what every node offers beyond a process, in the words of docs/EXTERNAL-AGENTS.md.
func abilities() []string {
	return []string{"config", "images", "init", "ports", "probes", "secrets", "security", "tty", "user", "volumes"}
}

// features are the fields of manifests that are honoured beyond those of the first agents.
func features() []string {
	return []string{spec.FeatureEnvFields, spec.FeatureEnvSecrets, spec.FeatureExtraHosts, spec.FeaturePostStart,
		spec.FeaturePreStop, spec.FeatureSubPath}
}

// keepsAway reports whether a taint is of the kind that people set to keep pods away. Those that Kubernetes sets itself, while a node is
// not
// ready or cordoned, are no property of the node.
func keepsAway(t Taint) bool {
	return (t.Effect == "NoSchedule" || t.Effect == "NoExecute") && !strings.HasPrefix(t.Key, "node.kubernetes.io/") && t.Key != ""
}

func taintText(t Taint) string {
	if t.Value == "" {
		return t.Key
	}
	return t.Key + "=" + t.Value
}

// tolerated are the tolerations that a pod of a service needs to get onto the node.
func tolerated(n *Node, list []spec.Toleration) (out []toleration) {
	for _, t := range n.Spec.Taints {
		if keepsAway(t) && slices.ContainsFunc(list, func(s spec.Toleration) bool {
			return s.Key == "*" || s.Key == t.Key && (s.Value == "" || s.Value == t.Value)
		}) {
			out = append(out, toleration{Key: t.Key, Operator: "Equal", Value: t.Value, Effect: t.Effect})
		}
	}
	return out
}

// labels are those of the node that a label of Skerry can be, in order of their keys as far as there may be.
func labels(n *Node) map[string]string {
	out := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(n.Metadata.Labels)) {
		if v := n.Metadata.Labels[k]; len(out) < spec.MaxLabels && spec.CheckLabel(k, v) == nil {
			out[k] = v
		}
	}
	return out
}

// area is the zone, which names its region in most clouds, else the region.
func area(n *Node) string {
	for _, k := range []string{zoneLabel, regionLabel} {
		if v := n.Metadata.Labels[k]; v != "" && spec.CheckLabel(k, v) == nil {
			return v
		}
	}
	return ""
}

// address is where the node's ports are reached: IPv4 first.
func address(n *Node) string {
	six := ""
	for _, kind := range []string{"InternalIP", "ExternalIP"} {
		for _, a := range n.Status.Addresses {
			ip, err := netip.ParseAddr(a.Address)
			switch {
			case a.Type != kind || err != nil:
			case ip.Is4():
				return ip.String()
			case six == "":
				six = ip.String()
			}
		}
	}
	return six
}

// ready reports whether the node's kubelet is in touch with the API server, and if not, why.
func ready(n *Node) (string, bool) {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			if c.Status == "True" {
				return "", true
			}
			return "its node is not ready in Kubernetes: " + why(c.Reason, c.Message), false
		}
	}
	return "its node has no condition Ready in Kubernetes", false
}

// WorkerName makes a name of a worker of a node's: dots become hyphens, and what is too long, or begins with a digit, gets a mark of the
// whole name, so that no two nodes become one worker.
func WorkerName(node string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, node)
	if name == node && skerry.CheckName(name) == nil && !marked().MatchString(name) {
		return name
	}
	name = "n-" + strings.Trim(name, "-")
	if room := skerry.MaxNameLength - markLength - 1; len(name) > room {
		name = strings.TrimRight(name[:room], "-")
	}
	return name + "-" + mark(node)
}

const markLength = 8

// marked is what a name with a mark looks like: a node that is called so gets one, too, or it could meet another's.
var marked = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^n-.*-[0-9a-f]{8}$`) })

// mark tells apart texts whose short forms are the same.
func mark(parts ...string) string {
	h := fnv.New32a()
	for _, p := range parts {
		_, _ = h.Write([]byte(p))
		_, _ = h.Write([]byte{0})
	}
	return fmt.Sprintf("%08x", h.Sum32())
}
