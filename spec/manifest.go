package spec

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// APIVersion is the version of the manifest format that this package reads and writes.
const APIVersion = "skerry/v1"

// KindApplication is the only kind of a manifest so far.
const KindApplication = "Application"

// Duration is a span of time that is written as "1m30s" in manifests. Negative spans are refused.
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d *Duration) UnmarshalJSON(data []byte) error {
	// One that should not be is read back from records and answers, as with Bytes.
	if err := d.UnmarshalStrict(data); err == nil || !errors.Is(err, errNegative) {
		return err
	}
	return nil
}

var errNegative = errors.New("is negative; a duration is zero or more")

// UnmarshalStrict gives an error with a negative one, and sets it.
func (d *Duration) UnmarshalStrict(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("a duration must be a string such as 30s or 5m, not %s", data)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration; write a number with a unit, such as 30s or 5m", s)
	}
	*d = Duration(v)
	if v < 0 {
		return fmt.Errorf("%q %w", s, errNegative)
	}
	return nil
}

// Application is what a developer applies: services that belong together.
type Application struct {
	APIVersion string          `json:"apiVersion" doc:"Version of the format." enum:"skerry/v1"`
	Kind       string          `json:"kind" doc:"Kind of the manifest." enum:"Application"`
	Metadata   Metadata        `json:"metadata" doc:"Name and labels of the application."`
	Spec       ApplicationSpec `json:"spec" doc:"The desired state."`
}

// Key gives the application's key.
func (a *Application) Key() skerry.AppKey {
	return skerry.AppKey{Namespace: a.Metadata.Namespace, Name: a.Metadata.Name}
}

// Metadata names an application.
type Metadata struct {
	Name      string            `json:"name" doc:"Name, unique within the namespace; a DNS label." pattern:"name"`
	Namespace string            `json:"namespace,omitempty" doc:"Namespace, which belongs to one organisation. Default: default." pattern:"name"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels for selection; they have no meaning to Skerry."`
	// Description is for people.
	Description string `json:"description,omitempty" doc:"What the application is, in a few words for people; at most 1,000 bytes."`
}

// ApplicationSpec lists the services of an application, and what it wants of others.
type ApplicationSpec struct {
	Services []ServiceSpec `json:"services" doc:"The services; their names are unique within the application."`
	Imports  []Import      `json:"imports,omitempty" doc:"Exports to use from other applications. An export of another organisation is not reachable unless it is listed here; within an organisation the export suffices."`
}

// Service finds a service by name, or gives nil.
func (s *ApplicationSpec) Service(name string) *ServiceSpec {
	for i := range s.Services {
		if s.Services[i].Name == name {
			return &s.Services[i]
		}
	}
	return nil
}

// Mode says how many instances of a service run, and for how long.
type Mode string

// Modes of a service.
const (
	ModeService   Mode = "service"   // replicas that run until they are removed
	ModeJob       Mode = "job"       // runs to completion
	ModeCron      Mode = "cron"      // a job at each time of a schedule
	ModePerWorker Mode = "perWorker" // one instance on every worker that fits
	ModePerDevice Mode = "perDevice" // one instance for every device that fits
)

// HasCopies reports whether the owner of a service gives each site one instance of it, which stands for the copies there. The site counts
// them: one for each of its workers, or for each device that its workers offer.
func (m Mode) HasCopies() bool { return m == ModePerWorker || m == ModePerDevice }

// ServiceSpec is one service: a main container, with init and side containers that share its network and volumes, what
// it needs (the SLA) and how it is looked after.
type ServiceSpec struct {
	Name   string            `json:"name" doc:"Name, unique within the application; a DNS label." pattern:"name"`
	Labels map[string]string `json:"labels,omitempty" doc:"Labels for selection."`
	// Ways to a service are no part of its instances.
	Aliases []string `json:"aliases,omitempty" doc:"Further names of the service within its application. Several services may have the same one: it then leads to the instances of all of them, such as of two versions or of replicas that differ. Changing them restarts nothing."`
	// Description is for people, and no part of what an instance runs.
	Description string     `json:"description,omitempty" doc:"What the service is, in a few words for people; at most 1,000 bytes. Changing it restarts nothing."`
	Mode        Mode       `json:"mode,omitempty" doc:"How many instances run and for how long: perWorker is one on every worker that fits, perDevice one for every device of the class in devices. Default: service." enum:"service,job,cron,perWorker,perDevice"`
	Replicas    *int       `json:"replicas,omitempty" doc:"Number of instances in mode service. Default: 1." min:"0" max:"10000"`
	Scale       *ScaleSpec `json:"scale,omitempty" doc:"Makes the number of instances follow their load, in mode service; replicas is then the initial number."`
	Job         *JobSpec   `json:"job,omitempty" doc:"Completions of a job or of each run of a cron service."`
	Cron        *CronSpec  `json:"cron,omitempty" doc:"Schedule of a cron service."`
	Runtime     string     `json:"runtime,omitempty" doc:"How the code runs: native (a process of the host), oci (a container), containerd (a container that the containerd of a worker runs), wasm (a WebAssembly module), gvisor (a container on a kernel in user space), microvm (a container in a virtual machine), unikernel (a kernel that is the whole program, in a virtual machine), vm (a disk with its own system, in a virtual machine), or auto (the cheapest that its worker has, that keeps the service apart as isolation says and, with expectedRate, stays clear of its saturation point). Default: auto." enum:"auto,native,oci,containerd,wasm,gvisor,microvm,unikernel,vm"`
	Isolation   Isolation  `json:"isolation,omitempty" doc:"Isolation of the service from others on its worker: shared (namespaces and filters), sandboxed (a kernel or machine in user space stands between it and the host's kernel) or hardware (a virtual machine). Default: shared." enum:"shared,sandboxed,hardware"`
	// A class weakens nothing: the worker's operator declares it, and its containers are described like those of any other.
	RuntimeClass string `json:"runtimeClass,omitempty" doc:"With runtime containerd, the class of containers in which it runs: a shim, such as that of Kata Containers, that workers offer under this name (skerry worker --containerd-class). Default: any class that keeps the service apart as isolation says, or without isolation the shim that workers have without a class." pattern:"name"`
	// Both are about one instance, as resources.cpu is, on which they depend: the choice then does not change with the number of instances.
	LatencyObjective Duration `json:"latencyObjective,omitempty" doc:"Time within which the service itself must answer 99 of 100 requests, not counting the network. runtime auto then keeps a larger distance from a runtime's saturation point. From 1ms to 1h; needs ports and resources.cpu."`
	ExpectedRate     float64  `json:"expectedRate,omitempty" doc:"Requests per second that one instance must handle. runtime auto then chooses the cheapest that is known to stay clear of its saturation point at that rate with resources.cpu, else the one with the most headroom. Needs ports and resources.cpu." min:"0.001" max:"1000000"`

	Container `json:",inline"`
	Pinned    map[string]string `json:"pinned,omitempty" readonly:"true" doc:"Digest of each of its images, resolved when it was applied. It is part of the version. The server fills it in and ignores the manifest's value."`
	Platforms []string          `json:"platforms,omitempty" doc:"Platforms that all of its images are built for, such as linux/arm64, if their registry could be asked. The server fills it in and ignores the manifest's value."`

	Needs []string `json:"needs,omitempty" readonly:"true" doc:"What its application needs of agents. The server fills it in."`

	Wasm     *Wasm           `json:"wasm,omitempty" doc:"How a module of runtime wasm is run. Default: once, with sockets that listen at the service's TCP ports (SKERRY_LISTEN lists their descriptors)."`
	Machine  *Machine        `json:"machine,omitempty" doc:"Configuration of a machine of runtime vm."`
	Init     []SideContainer `json:"init,omitempty" doc:"Containers that run one after another, to completion, before the main one starts."`
	Sidecars []SideContainer `json:"sidecars,omitempty" doc:"Containers that run next to the main one; they start before it and stop after it."`
	Volumes  []Volume        `json:"volumes,omitempty" doc:"Volumes that the containers of an instance may mount; at most 100."`
	Devices  []DeviceRequest `json:"devices,omitempty" doc:"Devices of the worker that the main container has for itself. Only containers (runtime oci) have them."`
	Config   []ConfigFile    `json:"config,omitempty" doc:"Files that appear in every container of an instance; at most 100."`
	Secrets  []SecretUse     `json:"secrets,omitempty" doc:"Secrets of the namespace; their files appear in every container of an instance, in memory."`

	Ports      []Port      `json:"ports,omitempty" doc:"Ports that the service listens on; at most 256."`
	Hostname   string      `json:"hostname,omitempty" doc:"Name that the containers of an instance have for themselves; it may have dots. Others do not find them by it. Default: the instance's ID."`
	ExtraHosts []HostEntry `json:"extraHosts,omitempty" doc:"Further lines of its hosts file. They precede names of services."`

	Links []Link `json:"links,omitempty" doc:"Services of this application that this one talks to; their service addresses, or without the overlay the endpoints of their ready instances, are kept up to date in the file named by SKERRY_ENDPOINTS."`

	StartAfter []StartAfter `json:"startAfter,omitempty" doc:"Services for which a version of this one, or the run of a job, waits before its first instance starts, until one of their present version is running or ready, or a job is completed, with success; an update waits in the same way, and the old version serves meanwhile. Instances that are replaced later wait for nobody. Changing it restarts nothing."`

	Addresses *ServiceAddresses `json:"addresses,omitempty" doc:"Service addresses chosen from 10.30.0.0/16, or their IPv6 addresses in fd30:5ce7::/96, unique within the application. Default: assigned."`
	Export    []Export          `json:"export,omitempty" doc:"Other applications that may reach the service. Default: none."`
	Ingress   []Ingress         `json:"ingress,omitempty" doc:"How clients outside reach the service through the workers. Default: not at all."`
	Egress    *Egress           `json:"egress,omitempty" doc:"Where instances may go outside the overlay. Other services, by their names and addresses in the overlay, and the resolver are not outside. A site may bound it by organisation. Default: what the site's policy says of the organisation, else the internet and the site's network. What the worker closes (its own services, link-local and metadata addresses, --closed-networks) stays closed."`

	Resources Resources `json:"resources,omitempty" doc:"Resources of an instance; they are reserved on the worker and enforced if the runtime supports it."`
	Placement Placement `json:"placement,omitempty" doc:"Where instances may run, and how hard to look for a place."`

	Probes           Probes       `json:"probes,omitempty" doc:"How the health of an instance is determined."`
	Restart          RestartSpec  `json:"restart,omitempty" doc:"Behaviour when the main container ends."`
	Update           UpdateSpec   `json:"update,omitempty" doc:"How a new version replaces the old one."`
	Migration        Migration    `json:"migration,omitzero" doc:"How an instance is moved to another worker."`
	TerminationGrace *Duration    `json:"terminationGrace,omitempty" doc:"Time between the stop signal and the kill. Default: 10s."`
	OnDisconnect     OnDisconnect `json:"onDisconnect,omitempty" doc:"Behaviour of an instance when its worker is cut off: run (a second copy may run elsewhere meanwhile), or {stopAfter: 30s} (it stops after that time, and no replacement starts elsewhere before; a rolling update or a move between machines in touch still starts the next copy first). The same applies at a site without its root, if placement allows another, at which the root may start it. Default: run."`
	OnReconnect      string       `json:"onReconnect,omitempty" doc:"Which copy stays when a cut-off worker, or site, returns after its instance was replaced: keep-replacement, keep-original (if it is ready), or keep-best. A healthy copy is never restarted for that. Default: keep-replacement." enum:"keep-replacement,keep-original,keep-best"`
	Snapshots        *Snapshots   `json:"snapshots,omitempty" doc:"How copies of the local volumes are made (skerry volume snapshot). Changing it restarts nothing."`
	Metrics          *Metrics     `json:"metrics,omitempty" doc:"Where the service offers Prometheus metrics."`
	Logs             LogSpec      `json:"logs,omitempty" doc:"How much of the output to keep."`
}

// Container is one program with its image and surroundings.
type Container struct {
	Image   string            `json:"image,omitempty" doc:"Image reference, as registry/repository:tag or with @sha256:digest. For runtime native it may be left out: the command is then found on the host."`
	Command []string          `json:"command,omitempty" doc:"Program and first arguments, instead of the image's entry point."`
	Args    []string          `json:"args,omitempty" doc:"Arguments, instead of the image's. A unikernel gets them as its command line, with $(NAME) for a variable of its environment, or of its network: NET_IPV4, NET_IPV4_CIDR and NET_IPV4_GATEWAY, the same with IPV6, NET_MAC, NET_MTU, NET_DNS."`
	Env     map[string]string `json:"env,omitempty" doc:"Environment variables."`
	// Their values are known only when an instance starts, and each may stand as $(NAME) in command, args and the values of env.
	EnvFields  map[string]EnvField   `json:"envFields,omitempty" doc:"Variables with what is known when an instance starts, by name: instance (its ID), ordinal, service, app, namespace, worker (the name), address (its own, IPv4 first), addresses (all of its own, separated by commas) or hostAddress (its worker's, where host ports are reached). $(NAME) in command, args and the values of env is replaced by the value of NAME."`
	EnvSecrets map[string]SecretFile `json:"envSecrets,omitempty" doc:"Variables with the content of a file of one of the service's secrets, as SECRET/FILE. $(NAME) is replaced as with envFields. A variable is less well kept than a file: the container's configuration on its worker has it, every process that the program starts inherits it, and many programs print their environment when they fail. In an argument, every user of the worker can read it, and as a variable of a machine (runtime vm), every user of that machine."`
	WorkingDir string                `json:"workingDir,omitempty" doc:"Directory in which the program starts."`
	User       string                `json:"user,omitempty" doc:"User, or user:group, by name or number."`
	StopSignal string                `json:"stopSignal,omitempty" doc:"Signal that asks the program to end. Default: the image's, else SIGTERM."`
	Mounts     []Mount               `json:"mounts,omitempty" doc:"Where the volumes appear; at most 200 in all containers of a service."`
	Security   Security              `json:"security,omitempty" doc:"Privileges of the program."`
	Ulimits    map[string]Ulimit     `json:"ulimits,omitempty" doc:"Resource limits by name: as, core, cpu, data, fsize, memlock, nofile, nproc, stack. Default: those of the worker's service."`
	Sysctls    map[string]string     `json:"sysctls,omitempty" doc:"Kernel parameters of the instance's own network and IPC namespaces, such as net.core.somaxconn. Those of the whole machine are refused."`
	TTY        bool                  `json:"tty,omitempty" doc:"Give the program a terminal."`
	PostStart  *Hook                 `json:"postStart,omitempty" doc:"What is done once the container runs, beside its program. The instance is not ready before, and its probes wait for it; the main container waits for those of sidecars. If it fails, the container is ended, and the restart policy decides. It is done at each start of the container, and may be done twice if the worker's agent is started anew meanwhile. Init containers have none."`
	PreStop    *Hook                 `json:"preStop,omitempty" doc:"What is done before the container is asked to end, within the service's terminationGrace. If it fails, or is not done in time, the container ends all the same. It is not done for a program that ends by itself, or whose machine dies, and may be done twice if the worker's agent is started anew meanwhile. Init containers have none."`
}

// Wasm says how a WebAssembly module is run.
type Wasm struct {
	Handler     string       `json:"handler,omitempty" doc:"http: the module runs once for each request at the service's first TCP port, as in CGI (RFC 3875): the request is in the environment and on standard input, the answer is its output." enum:"http"`
	Timeout     Duration     `json:"timeout,omitempty" doc:"Longest time for a request; after that the run is aborted, and the client gets 504. Default: 10s."`
	Concurrency int          `json:"concurrency,omitempty" doc:"Concurrent requests; they share the memory. Others wait. Default: 8." min:"1" max:"1000"`
	MaxBody     skerry.Bytes `json:"maxBody,omitempty" doc:"Maximum size of a request or an answer. Default: 8Mi."`
}

// Machine says what a machine is given that boots a disk.
type Machine struct {
	Disk       skerry.Bytes `json:"disk,omitempty" doc:"Size of its disk, at least that of the image's. Its changes end with the instance. Default: the image's."`
	UserData   string       `json:"userData,omitempty" doc:"User data for cloud-init (data source NoCloud), beginning with #cloud-config or #!. Hostname, network, environment (/etc/skerry/environment) and config files are added."`
	SSHKeys    []string     `json:"sshKeys,omitempty" doc:"Public keys that may log in as the image's first user."`
	Durability string       `json:"durability,omitempty" doc:"durable: flushed data is on stable storage. relaxed: it is lost when the worker loses power, in exchange for speed. Default: durable." enum:"durable,relaxed"`
}

// DurabilityRelaxed is a disk's whose flushes do nothing.
const DurabilityRelaxed = "relaxed"

// SideContainer is an init or side container.
type SideContainer struct {
	Name      string `json:"name" doc:"Name, unique within the service; a DNS label, not main." pattern:"name"`
	Container `json:",inline"`
	Resources Resources `json:"resources,omitempty" doc:"Limits of this container; they count on top of the service's."`
}

// JobSpec says when a job is done.
type JobSpec struct {
	Completions  *int      `json:"completions,omitempty" doc:"Instances that must end with status 0. Default: 1." min:"1" max:"10000"`
	Parallelism  *int      `json:"parallelism,omitempty" doc:"Instances that run at the same time. Default: 1." min:"1" max:"10000"`
	BackoffLimit *int      `json:"backoffLimit,omitempty" doc:"Failed instances after which the job counts as failed; the next instance waits for 10 s, doubled after each further failure, up to 6 min. Default: 6." min:"0" max:"1000"`
	TTL          *Duration `json:"ttl,omitempty" doc:"How long ended instances are shown. Default: 1h."`
	FinishBefore *Duration `json:"finishBefore,omitempty" doc:"Time from the start of a run by which it must be done. Runs with the least slack are placed first; one that cannot be done in time fails at once with the reason."`
	Estimate     *Duration `json:"estimate,omitempty" doc:"Expected duration of one instance. Default: that of earlier runs, else nothing."`
}

// CronSpec says when runs of a cron service start.
type CronSpec struct {
	Schedule    string `json:"schedule" doc:"Five fields as in crontab, or @hourly and the like; UTC unless CRON_TZ= is given. Only the last of several missed runs is made up for."`
	Concurrency string `json:"concurrency,omitempty" doc:"Behaviour when the last run has not ended: allow, forbid (skip) or replace. Default: forbid." enum:"allow,forbid,replace"`
}

// Volume is storage shared by the containers of one instance. Exactly one of its kinds is given.
type Volume struct {
	Name  string       `json:"name" doc:"Name, unique within the service; a DNS label." pattern:"name"`
	Empty *EmptyVolume `json:"empty,omitempty" doc:"An empty directory that lives as long as the instance."`
	Local *LocalVolume `json:"local,omitempty" doc:"A directory that stays on its worker, one for each replica, in mode service: the replica runs there again after every restart and update. It outlives its service and application, unless reclaim says otherwise: an application of the same name in the same namespace finds it again."`
	Host  *HostVolume  `json:"host,omitempty" doc:"A path of the worker; a cluster's admission policy may refuse it, or allow only reading."`
	NFS   *NFSVolume   `json:"nfs,omitempty" doc:"A directory that an NFS server exports. The worker mounts it, if its operator lists the server (--nfs) and the site admits it for the organisation."`
}

// EmptyVolume is a directory made for the instance.
type EmptyVolume struct {
	Memory bool         `json:"memory,omitempty" doc:"Keep it in memory; it then counts against the memory limit."`
	Size   skerry.Bytes `json:"size,omitempty" doc:"Upper limit. Default: 64Mi with memory, else what resources.storage leaves; on the disk it counts as storage of the worker."`
}

// HostVolume is a path of the worker's machine.
type HostVolume struct {
	Path       string `json:"path" doc:"Absolute path on the worker."`
	FileSystem string `json:"fileSystem,omitempty" doc:"Network file system that the worker's operator has mounted there, or above. Instances wait where it is not mounted, and write to no disk in its place; and they may move to other workers, which have the same files." enum:"nfs,smb,ceph,glusterfs"`
}

// Mount shows a volume in a container.
type Mount struct {
	Volume   string `json:"volume" doc:"Name of the volume."`
	Path     string `json:"path" doc:"Absolute path in the container."`
	SubPath  string `json:"subPath,omitempty" doc:"File or directory of the volume that is mounted in place of its root, such as data/web. A directory that is missing in an empty or local volume is made. Links that lead out of the volume are refused."`
	ReadOnly bool   `json:"readOnly,omitempty" doc:"Refuse writes."`
}

// ConfigFile is a small file given in the manifest.
type ConfigFile struct {
	Path    string `json:"path" doc:"Absolute path in the containers."`
	Content string `json:"content" doc:"Contents of the file; at most 256Ki in total."`
	Mode    string `json:"mode,omitempty" doc:"Permissions in octal. Default: 0444."`
}

// Port is a port that a service listens on.
type Port struct {
	Name string `json:"name,omitempty" doc:"Name, unique within the service. Default: protocol and number." pattern:"name"`
	Port int    `json:"port" doc:"Port inside the instance." min:"1" max:"65535"`
	// ServicePort is for callers that were written for another port. The instance's own network translates it.
	ServicePort int `json:"servicePort,omitempty" doc:"Another port at which the instance, and the service by its addresses, is reached by others, such as 80 where the program listens at 8080. Both ports work. Only for tcp and udp." min:"1" max:"65535"`
	HostPort    int `json:"hostPort,omitempty" doc:"Port of the worker that forwards here; -1 lets the worker choose." min:"-1" max:"65535"`
	// HostAddress is checked by the worker, which alone knows its addresses.
	HostAddress string `json:"hostAddress,omitempty" doc:"The only IPv4 address of the worker at which hostPort listens. Default: all."`
	Protocol    string `json:"protocol,omitempty" doc:"Transport protocol; any for a service that uses several. The worker's ports carry only tcp and udp. Default: tcp." enum:"tcp,udp,sctp,any"`
}

// Probes find out whether an instance has started, is ready for traffic and still lives.
type Probes struct {
	Startup   *Probe `json:"startup,omitempty" doc:"The other two wait until it succeeds; when it fails for good the container is restarted."`
	Readiness *Probe `json:"readiness,omitempty" doc:"While it fails the instance gets no traffic. Default: ready as soon as it runs."`
	Liveness  *Probe `json:"liveness,omitempty" doc:"When it fails for good the container is restarted."`
}

// Probe is one check, with exactly one of http, tcp and exec.
type Probe struct {
	HTTP         *HTTPProbe `json:"http,omitempty" doc:"A GET that must answer with status 200 to 399."`
	TCP          *TCPProbe  `json:"tcp,omitempty" doc:"A TCP connection that must be accepted."`
	Exec         *ExecProbe `json:"exec,omitempty" doc:"A command in the main container that must end with status 0."`
	InitialDelay Duration   `json:"initialDelay,omitempty" doc:"Time before the first try. Default: 0s."`
	Interval     Duration   `json:"interval,omitempty" doc:"Time between tries. Default: 10s, and 1s for startup."`
	Timeout      Duration   `json:"timeout,omitempty" doc:"Time for one try. Default: 1s."`
	Failures     int        `json:"failures,omitempty" doc:"Failures in a row that count as failed. Default: 3, and 30 for startup." min:"0" max:"1000"`
	Successes    int        `json:"successes,omitempty" doc:"Successes in a row that count as passed. Default: 1." min:"0" max:"1000"`
}

// HTTPProbe is a GET.
type HTTPProbe struct {
	Path    string            `json:"path,omitempty" doc:"Path. Default: /."`
	Port    int               `json:"port" doc:"Port inside the instance." min:"1" max:"65535"`
	Headers map[string]string `json:"headers,omitempty" doc:"Headers to send."`
}

// TCPProbe is a connection.
type TCPProbe struct {
	Port int `json:"port" doc:"Port inside the instance." min:"1" max:"65535"`
}

// ExecProbe is a command.
type ExecProbe struct {
	Command []string `json:"command" doc:"Program and arguments."`
}

// RestartSpec says what happens when the main container ends.
type RestartSpec struct {
	Policy      string   `json:"policy,omitempty" doc:"always, onFailure or never. Default: always, and never for jobs, where job.backoffLimit counts the failures." enum:"always,onFailure,never"`
	MaxAttempts *int     `json:"maxAttempts,omitempty" doc:"Restarts in window after which the instance has failed and is placed again. Default: 5." min:"0" max:"10000"`
	Window      Duration `json:"window,omitempty" doc:"Time in which restarts are counted. Default: 10m."`
	Backoff     Duration `json:"backoff,omitempty" doc:"Wait before the first restart; it doubles each time. Default: 500ms."`
	MaxBackoff  Duration `json:"maxBackoff,omitempty" doc:"Longest wait. Default: 1m."`
}

// UpdateSpec says how a new version replaces the old one.
type UpdateSpec struct {
	Strategy       string    `json:"strategy,omitempty" doc:"rolling (the new one starts before an old one stops) or recreate. Default: rolling." enum:"rolling,recreate"`
	MaxSurge       *int      `json:"maxSurge,omitempty" doc:"Instances above replicas during a rolling update. Default: 1; 0 with local volumes or devices, where the new one starts when the old one has ended." min:"0" max:"10000"`
	MaxUnavailable *int      `json:"maxUnavailable,omitempty" doc:"Instances that may be missing during a rolling update. Default: 0; 1 with local volumes or devices. In modes perWorker and perDevice, on so many workers, or for so many devices, of a site at a time the new version takes the place of the old one; 0 is 1." min:"0" max:"10000"`
	Canary         *Canary   `json:"canary,omitempty" doc:"Instances of the new version that start first and are watched. Default: none. In modes perWorker and perDevice, so many workers or devices of each site; default: one, for healthyTime."`
	Batch          int       `json:"batch,omitempty" doc:"Instances per wave; the next wave starts when all of them are healthy. Default: all in one wave." min:"0" max:"10000"`
	Pause          Duration  `json:"pause,omitempty" doc:"Wait between waves. Default: 0s."`
	HealthyTime    *Duration `json:"healthyTime,omitempty" doc:"Time for which an instance of the new version must have been ready to count. It doubles with each restart or failure during the update. Default: 10s for services, and for perWorker and perDevice, where 0 is 10s."`
	Rollback       string    `json:"rollback,omitempty" doc:"automatic (the previous version returns when the new one fails) or off. Default: automatic for services, perWorker and perDevice, else off." enum:"automatic,off"`
	Failures       *int      `json:"failures,omitempty" doc:"Restarts and failures of instances of the new version, in total, after which it counts as failed. Default: 3." min:"1" max:"10000"`
	Deadline       *Duration `json:"deadline,omitempty" doc:"Time without being ready, for an instance that has a place, after which the new version counts as failed. Default: 10m."`
	Sites          string    `json:"sites,omitempty" doc:"In modes perWorker and perDevice, how an update reaches several sites: inTurn (one site first, and once its update is done, as many at a time as are done already) or all (all at the same time). A site that is out of touch holds up no other one, and is updated when it is back. Default: inTurn." enum:"inTurn,all"`
	Limits         string    `json:"limits,omitempty" doc:"How a version that differs only in cpu and memory is rolled out: live (the limits of running instances change, if their worker supports it and has room) or replace (as any other version, for programs that read their limits when they start). Default: live." enum:"live,replace"`
}

// Migration says how an instance is moved: when its worker is drained, for its SLA, or to a better place.
type Migration struct {
	Mode string `json:"mode,omitempty" doc:"restart (another one starts, and then this one ends) or checkpoint (CRIU moves its memory and files along; it serves nobody meanwhile, its connections are closed, and it stays if that does not work). If its worker's machine dies, its memory is lost in either case. Default: restart." enum:"restart,checkpoint"`
}

// MigrateCheckpoint is the value of migration.mode for services that are moved with their memory.
const MigrateCheckpoint = "checkpoint"

// LimitsReplace is the value of update.limits for programs that read their limits when they start.
const LimitsReplace = "replace"

// Values of update.rollback.
const (
	RollbackAutomatic = "automatic"
	RollbackOff       = "off"
)

// Values of update.sites.
const (
	SitesInTurn = "inTurn"
	SitesAll    = "all"
)

// Canary is how many instances of a new version come first, and for how long they are watched before others follow.
type Canary struct {
	Count   int      `json:"count,omitempty" doc:"Instances; instead of percent. Default: 1." min:"0" max:"10000"`
	Percent int      `json:"percent,omitempty" doc:"Percentage of replicas, rounded up; instead of count." min:"0" max:"100"`
	For     Duration `json:"for,omitempty" doc:"Time for which all of them must be ready without a restart. Default: 1m."`
}

// Of is how many of so many instances are canaries: one at least, if there is any.
func (c *Canary) Of(replicas int) int {
	n := max(c.Count, (c.Percent*replicas+99)/100, 1)
	return min(n, replicas)
}

// Healthy is for how long an instance of a new version must have been ready to count.
func (u *UpdateSpec) Healthy() time.Duration {
	if u.HealthyTime == nil {
		return 0
	}
	return time.Duration(*u.HealthyTime)
}

// Metrics says where a service offers Prometheus metrics.
type Metrics struct {
	Port int    `json:"port" doc:"Port inside the instance." min:"1" max:"65535"`
	Path string `json:"path,omitempty" doc:"Path. Default: /metrics."`
}

// LogSpec bounds the log of one container.
type LogSpec struct {
	MaxSize skerry.Bytes `json:"maxSize,omitempty" doc:"Size after which the log is rotated; one old file is kept. Default: 10Mi."`
}

// Security says what a program may do. The zero value is the safe one.
type Security struct {
	Privileged   bool     `json:"privileged,omitempty" doc:"All capabilities and devices; a cluster's admission policy may refuse it."`
	ReadOnlyRoot bool     `json:"readOnlyRoot,omitempty" doc:"Refuse writes to the image's file system."`
	AddCaps      []string `json:"addCaps,omitempty" doc:"Capabilities beyond the default ones, such as NET_BIND_SERVICE."`
	DropCaps     []string `json:"dropCaps,omitempty" doc:"Default capabilities to drop, or ALL."`
	NewPrivs     bool     `json:"newPrivileges,omitempty" doc:"Let set-user-ID programs gain privileges."`
	Seccomp      string   `json:"seccomp,omitempty" doc:"System call filter: default or unconfined. Default: default, which admits 32-bit calls only if the image has a loader for such programs." enum:"default,unconfined"`
}

// MainContainer is the name of an instance's main container; side containers have names of their own.
const MainContainer = "main"

// EnvEndpoints is the variable that names the file with the endpoints of linked services.
const EnvEndpoints = "SKERRY_ENDPOINTS"

// CheckEnvName accepts names that a shell could set.
func CheckEnvName(s string) bool {
	return s != "" && !strings.ContainsAny(s, "=\x00")
}
