package pods

import (
	"encoding/json"
	"time"
)

// Objects of Kubernetes' API, as far as they concern us. What else they have is not read; what is of another type than it should be, as in
// the status of a pod that somebody else writes, must not keep the rest from being read, so that times are lenient.

// Time is a moment; the zero value where there is none, or one that cannot be read.
type Time struct{ time.Time }

// UnmarshalJSON never fails.
func (t *Time) UnmarshalJSON(data []byte) error {
	var s string
	t.Time = time.Time{}
	if json.Unmarshal(data, &s) == nil {
		t.Time, _ = time.Parse(time.RFC3339, s)
	}
	return nil
}

// Meta is the metadata of an object.
type Meta struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	CreationTimestamp Time              `json:"creationTimestamp,omitzero"`
	DeletionTimestamp Time              `json:"deletionTimestamp,omitzero"`
}

// Node is a node.
type Node struct {
	Metadata Meta `json:"metadata"`
	Spec     struct {
		Unschedulable bool    `json:"unschedulable"`
		Taints        []Taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []Condition       `json:"conditions"`
		Addresses   []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
		NodeInfo struct {
			Architecture            string `json:"architecture"`
			OperatingSystem         string `json:"operatingSystem"`
			KernelVersion           string `json:"kernelVersion"`
			ContainerRuntimeVersion string `json:"containerRuntimeVersion"`
			KubeletVersion          string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// Taint is one of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

// Condition is one of a node or pod.
type Condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Pod is a pod.
type Pod struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   Meta      `json:"metadata"`
	Spec       PodSpec   `json:"spec"`
	Status     PodStatus `json:"status,omitzero"`
}

// PodSpec is what a pod is to be.
type PodSpec struct {
	NodeName          string          `json:"nodeName,omitempty"`
	Affinity          *affinity       `json:"affinity,omitempty"`
	Tolerations       []toleration    `json:"tolerations,omitempty"`
	RestartPolicy     string          `json:"restartPolicy,omitempty"`
	Grace             *int64          `json:"terminationGracePeriodSeconds,omitempty"`
	HostNetwork       bool            `json:"hostNetwork,omitempty"`
	AutomountToken    *bool           `json:"automountServiceAccountToken,omitempty"`
	ServiceLinks      *bool           `json:"enableServiceLinks,omitempty"`
	ImagePullSecrets  []nameRef       `json:"imagePullSecrets,omitempty"`
	HostAliases       []hostAlias     `json:"hostAliases,omitempty"`
	PriorityClassName string          `json:"priorityClassName,omitempty"`
	InitContainers    []PodContainer  `json:"initContainers,omitempty"`
	Containers        []PodContainer  `json:"containers,omitempty"`
	Volumes           []volume        `json:"volumes,omitempty"`
	Overhead          map[string]text `json:"overhead,omitempty"`
	Security          *allSecurity    `json:"securityContext,omitempty"`
}

// allSecurity is of all containers of a pod.
type allSecurity struct {
	Group  int64  `json:"fsGroup,omitempty"`
	Change string `json:"fsGroupChangePolicy,omitempty"`
}

// text is a string, or a number whose text counts: quantities may be either.
type text string

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) != nil {
		s = string(data)
	}
	*t = text(s)
	return nil
}

// PodContainer is a container of a pod.
type PodContainer struct {
	Name           string         `json:"name"`
	Image          string         `json:"image,omitempty"`
	Command        []string       `json:"command,omitempty"`
	Args           []string       `json:"args,omitempty"`
	WorkingDir     string         `json:"workingDir,omitempty"`
	Env            []envVar       `json:"env,omitempty"`
	Ports          []podPort      `json:"ports,omitempty"`
	Resources      podResources   `json:"resources,omitzero"`
	VolumeMounts   []volumeMount  `json:"volumeMounts,omitempty"`
	Security       *podSecurity   `json:"securityContext,omitempty"`
	StartupProbe   map[string]any `json:"startupProbe,omitempty"`
	ReadinessProbe map[string]any `json:"readinessProbe,omitempty"`
	LivenessProbe  map[string]any `json:"livenessProbe,omitempty"`
	TTY            bool           `json:"tty,omitempty"`
	Stdin          bool           `json:"stdin,omitempty"`
	PullPolicy     string         `json:"imagePullPolicy,omitempty"`
	RestartPolicy  string         `json:"restartPolicy,omitempty"` // of an init container: always makes it a sidecar
	Lifecycle      *lifecycle     `json:"lifecycle,omitempty"`
}

// lifecycle is what the kubelet does after the start of a container, and before it is asked to end.
type lifecycle struct {
	PostStart map[string]any `json:"postStart,omitempty"`
	PreStop   map[string]any `json:"preStop,omitempty"`
}

type envVar struct {
	Name      string     `json:"name"`
	Value     string     `json:"value,omitempty"`
	ValueFrom *envSource `json:"valueFrom,omitempty"`
}

type envSource struct {
	FieldRef  *fieldRef  `json:"fieldRef,omitempty"`
	SecretKey *secretKey `json:"secretKeyRef,omitempty"`
}

type fieldRef struct {
	FieldPath string `json:"fieldPath"`
}

type secretKey struct {
	Name string `json:"name"`
	Key  string `json:"key"`
}

type podPort struct {
	Name          string `json:"name,omitempty"`
	ContainerPort int    `json:"containerPort"`
	HostPort      int    `json:"hostPort,omitempty"`
	Protocol      string `json:"protocol,omitempty"`
}

type podResources struct {
	Requests map[string]text `json:"requests,omitempty"`
	Limits   map[string]text `json:"limits,omitempty"`
}

type volumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	SubPath   string `json:"subPath,omitempty"`
	ReadOnly  bool   `json:"readOnly,omitempty"`
}

type volume struct {
	Name     string        `json:"name"`
	EmptyDir *emptyDir     `json:"emptyDir,omitempty"`
	Secret   *secretVolume `json:"secret,omitempty"`
	Claim    *claimVolume  `json:"persistentVolumeClaim,omitempty"`
}

type claimVolume struct {
	Name string `json:"claimName"`
}

type emptyDir struct {
	Medium    string `json:"medium,omitempty"`
	SizeLimit string `json:"sizeLimit,omitempty"`
}

type secretVolume struct {
	SecretName string    `json:"secretName"`
	Items      []keyPath `json:"items,omitempty"`
}

type keyPath struct {
	Key  string `json:"key"`
	Path string `json:"path"`
	Mode int    `json:"mode,omitempty"`
}

type podSecurity struct {
	Privileged      bool          `json:"privileged,omitempty"`
	ReadOnlyRoot    bool          `json:"readOnlyRootFilesystem,omitempty"`
	AllowEscalation *bool         `json:"allowPrivilegeEscalation,omitempty"`
	RunAsUser       *int64        `json:"runAsUser,omitempty"`
	RunAsGroup      *int64        `json:"runAsGroup,omitempty"`
	Capabilities    *capabilities `json:"capabilities,omitempty"`
	Seccomp         *seccomp      `json:"seccompProfile,omitempty"`
}

type capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"`
}

type seccomp struct {
	Type string `json:"type"`
}

type nameRef struct {
	Name string `json:"name"`
}

type hostAlias struct {
	IP        string   `json:"ip"`
	Hostnames []string `json:"hostnames"`
}

type toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

type affinity struct {
	Node nodeAffinity `json:"nodeAffinity"`
}

type nodeAffinity struct {
	Required nodeSelector `json:"requiredDuringSchedulingIgnoredDuringExecution"`
}

type nodeSelector struct {
	Terms []nodeTerm `json:"nodeSelectorTerms"`
}

type nodeTerm struct {
	Fields []requirement `json:"matchFields,omitempty"`
}

type requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

// PodStatus is what became of a pod.
type PodStatus struct {
	Phase             string            `json:"phase,omitempty"`
	Reason            string            `json:"reason,omitempty"`
	Message           string            `json:"message,omitempty"`
	PodIP             string            `json:"podIP,omitempty"`
	Conditions        []Condition       `json:"conditions,omitempty"`
	ContainerStatuses []ContainerStatus `json:"containerStatuses,omitempty"`
	// InitContainerStatuses are those of init containers and sidecars.
	InitContainerStatuses []ContainerStatus `json:"initContainerStatuses,omitempty"`
}

// ContainerStatus is what became of a container.
type ContainerStatus struct {
	Name    string         `json:"name"`
	State   ContainerState `json:"state"`
	Ready   bool           `json:"ready"`
	Started *bool          `json:"started,omitempty"`
	ImageID string         `json:"imageID,omitempty"`
	// LastState is how it ended last if it was started again, RestartCount times.
	LastState    ContainerState `json:"lastState,omitzero"`
	RestartCount int            `json:"restartCount,omitempty"`
}

// ContainerState has one of the three.
type ContainerState struct {
	Waiting *struct {
		Reason  string `json:"reason,omitempty"`
		Message string `json:"message,omitempty"`
	} `json:"waiting,omitempty"`
	Running *struct {
		StartedAt Time `json:"startedAt,omitzero"`
	} `json:"running,omitempty"`
	Terminated *terminated `json:"terminated,omitempty"`
}

type terminated struct {
	ExitCode   int    `json:"exitCode"`
	Signal     int    `json:"signal,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Message    string `json:"message,omitempty"`
	StartedAt  Time   `json:"startedAt,omitzero"`
	FinishedAt Time   `json:"finishedAt,omitzero"`
}
