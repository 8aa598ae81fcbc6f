package view

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// What the API shows. Views are made for reading; nothing decides by them.

// AppRolledBack is the status of an application that runs, but not as its last manifest says: a version of a service failed and
// was taken back. It stays until somebody applies another manifest, undoes or resumes.
const AppRolledBack = "RolledBack"

// AppView is an application with how it fares.
type AppView struct {
	Key       skerry.AppKey     `json:"key"`
	Org       string            `json:"org"`
	Gen       skerry.Generation `json:"generation"`
	Deployed  bool              `json:"deployed"`
	Deleting  bool              `json:"deleting,omitempty"`
	Origin    string            `json:"origin" doc:"Tier that owns the application: root or cluster."`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	UpdatedAt time.Time         `json:"updatedAt,omitzero"`
	Author    string            `json:"author,omitempty"`
	Status    string            `json:"status" doc:"Registered, Progressing, Ready, RolledBack, Degraded, Deleting or Completed. RolledBack means that it runs, but that a new version failed and was rolled back."`
	Reason    string            `json:"reason,omitempty" doc:"Why the actual state differs from the desired one, as a code and a text."`
	Network   wire.NetworkID    `json:"network,omitempty" doc:"Overlay network of its services."`
	Services  []ServiceView     `json:"services"`
	// Aliases are names that lead to the instances of several of its services, with their addresses.
	Aliases []wire.NetworkService `json:"aliases,omitempty" doc:"Names that lead to the instances of all services that have them (leads)."`
	// Amended is how the site that tells this has changed it while the root is away.
	Amended  *wire.AmendmentView `json:"amended,omitempty" doc:"Overrides made at this site while the root is unreachable. The root decides on them once it is back."`
	Manifest *spec.Application   `json:"manifest,omitempty"`
	// Revisions are the versions that are kept, the present one first. They are told where the manifest is.
	Revisions []RevisionView `json:"revisions,omitempty" doc:"The current version and the earlier ones that are retained, newest first."`
}

// ServiceView is a service with how many of its instances there are.
type ServiceView struct {
	Name      string       `json:"name"`
	Mode      spec.Mode    `json:"mode"`
	Image     string       `json:"image,omitempty"`
	Digest    string       `json:"digest,omitempty"`
	Revision  string       `json:"revision,omitempty"`
	Want      int          `json:"want"`
	Scale     *ScaleView   `json:"scale,omitempty" doc:"Autoscaling status, if autoscaling is on."`
	Ready     int          `json:"ready"`
	UpToDate  int          `json:"upToDate"`
	Instances int          `json:"instances"`
	Restarts  int          `json:"restarts"`
	Reason    string       `json:"reason,omitempty" doc:"Why the actual state differs from the desired one, as a code and a text."`
	QoS       *wire.QoS    `json:"qos,omitempty"`
	Runs      []RunView    `json:"runs,omitempty"`
	Pending   bool         `json:"pending,omitempty" doc:"A job whose next run has not begun: of its present version, or after a restart."`
	Rollout   *RolloutView `json:"rollout,omitempty" doc:"Progress of the newest version; for services only."`
	// CrashLoops counts the instances that end again and again soon after their start.
	CrashLoops int `json:"crashLoops,omitempty" doc:"Number of instances that repeatedly end soon after they start."`
	// OutOfTouch counts those that ran, and of which nobody knows whether they are ready.
	OutOfTouch int  `json:"outOfTouch,omitempty" doc:"Running instances whose worker or site is unreachable. They do not count as ready."`
	Probed     bool `json:"probed,omitempty" doc:"Whether it has a readiness or startup probe; without one, ready means running."`
	// Addresses are its service addresses in its own application.
	Addresses *wire.NetworkService `json:"addresses,omitempty"`
	Ingress   []IngressView        `json:"ingress,omitempty" doc:"Ingresses through which outside clients reach the service."`
}

// RunView is one run of a job.
type RunView struct {
	ID        string    `json:"id"`
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"`
	Succeeded int       `json:"succeeded"`
	Failed    int       `json:"failed"`
	Result    string    `json:"result,omitempty"`
	Reason    string    `json:"reason,omitempty"`
}

// Plan tells what applying a manifest would do, without doing it.
type Plan struct {
	Key  skerry.AppKey `json:"key"`
	Tier string        `json:"tier" doc:"root or cluster. A root's plan names clusters, a cluster's plan names workers."`
	List []PlannedCopy `json:"instances"`
	Lost []string      `json:"lost,omitempty" doc:"What would be lost for good: data in local volumes that the manifest no longer lists."`
}

// PlanVerdict is what a cluster tells the root of one instance of a plan: whether it would take it, and why not in counts.
type PlanVerdict struct {
	Fits   bool          `json:"fits"`
	Copies int           `json:"copies,omitempty"`
	Why    []wire.Reason `json:"why,omitempty"`
}

// PlannedCopy is one instance of a plan.
type PlannedCopy struct {
	Service  string            `json:"service"`
	Instance skerry.InstanceID `json:"instance,omitempty" doc:"Existing instance that would stay."`
	Cluster  string            `json:"cluster,omitempty"`
	Worker   string            `json:"worker,omitempty"`
	Kept     bool              `json:"kept,omitempty"`
	Resized  string            `json:"resized,omitempty" doc:"It stays, and its limits change from and to these values, without a restart where its worker supports that."`
	Copies   int               `json:"copies,omitempty" doc:"For a perWorker or perDevice service, the workers or devices that qualify."`
	Decision *wire.Decision    `json:"decision,omitempty"`
}

// ClusterView is what the root shows of a site: aggregates only.
type ClusterView struct {
	Name      skerry.ClusterName `json:"name"`
	Connected bool               `json:"connected"`
	Lost      bool               `json:"lost,omitempty" doc:"It has been disconnected for so long that its instances start elsewhere."`
	Since     time.Time          `json:"since,omitzero"`
	Version   string             `json:"version,omitempty"`
	Report    wire.ClusterReport `json:"report"`
	ReportAt  time.Time          `json:"reportAt,omitzero"`
	Instances int                `json:"instances"`
	Trust     *CreditView        `json:"credit,omitempty" doc:"Disputed claims. Absent if there are none."`
	Heard     time.Time          `json:"heard,omitzero" doc:"When the root heard it last."`
	Expires   time.Time          `json:"expires,omitzero" doc:"When its certificate expires. It is renewed automatically."`
	Cordon    string             `json:"hold,omitempty" doc:"Why an operator of the root cordoned it."`
	Drain     *ClusterDrain      `json:"drain,omitempty" doc:"Progress of the drain, if it is being drained."`
	Labels    map[string]string  `json:"labels,omitempty" doc:"Labels that operators of the root gave it."`
}

// ClusterLabels changes the labels of a cluster.
type ClusterLabels struct {
	Set    map[string]string `json:"set,omitempty" doc:"Labels to set."`
	Remove []string          `json:"remove,omitempty" maxItems:"64" doc:"Keys of labels to remove."`
}

// ClusterDrainRequest asks for a cluster to be drained.
type ClusterDrainRequest struct {
	Reason   string `json:"reason,omitempty" maxLength:"200" doc:"Reason shown to people."`
	Parallel int    `json:"parallel,omitempty" minimum:"0" maximum:"100" doc:"Number of instances that move at once. Default: 1."`
}

// ClusterDrain tells how far a cluster is with being drained.
type ClusterDrain struct {
	Since    time.Time  `json:"since"`
	Parallel int        `json:"parallel" doc:"Number of instances that move at once."`
	Left     int        `json:"left" doc:"Instances still to be moved."`
	Moving   int        `json:"moving" doc:"Instances among those left whose copy is being started at another cluster."`
	Ending   int        `json:"ending" doc:"Old copies that are being stopped."`
	Done     bool       `json:"done,omitempty" doc:"Everything that can be moved has been moved."`
	Stays    []StayView `json:"stays,omitempty"`
}

// SiteRequest is a request of a user of the root for a cluster's API.
type SiteRequest struct {
	User    string // who asks
	Request string // its id in the root's log and audit
	Method  string
	Path    string // of the cluster's API, such as /v1/workers
	Body    any    // sent as JSON; nil: none
	// Sent is called before it goes to the cluster; nil: nothing is. From then on an answer that does not arrive leaves open what happened.
	Sent func()
}

// DrainRequest asks for a worker to be drained.
type DrainRequest struct {
	Reason   string `json:"reason,omitempty" maxLength:"200" doc:"Reason shown to people."`
	Parallel int    `json:"parallel,omitempty" minimum:"0" maximum:"100" doc:"Number of concurrent migrations. Default: 1."`
	To       string `json:"to,omitempty" maxLength:"63" doc:"Preferred destination."`
	Force    bool   `json:"force,omitempty" doc:"Also move instances that keep data on the worker. That data is lost."`
}

// MigrateRequest asks for an instance to be moved to another place, where it is ready before it ends at the first one.
type MigrateRequest struct {
	To     string `json:"to,omitempty" maxLength:"63" doc:"Destination: a worker, or at the root a cluster. Default: the best other worker of its site."`
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"Reason shown to people."`
	Force  bool   `json:"force,omitempty" doc:"Move it even if it keeps data on its worker. That data is lost."`
}

// RootMigrate is a MigrateRequest as the root passes it on to the cluster of the instance. It names no worker.
type RootMigrate struct {
	Actor  string `json:"actor,omitempty"`
	Reason string `json:"reason,omitempty"`
	Force  bool   `json:"force,omitempty"`
}

// Migrating tells what was begun for a MigrateRequest.
type Migrating struct {
	Instance skerry.InstanceID  `json:"instance"`
	Worker   skerry.WorkerName  `json:"worker,omitempty" doc:"Worker on which the copy starts. Not known to the root."`
	Cluster  skerry.ClusterName `json:"cluster,omitempty" doc:"At the root, the cluster within which, or to which, it moves."`
	Copy     skerry.InstanceID  `json:"copy,omitempty" doc:"Instance that replaces it at another cluster once ready."`
}

// UpgradeRequest has a worker's agent go over to another program.
type UpgradeRequest struct {
	Image  string        `json:"image" minLength:"1" maxLength:"512" doc:"Image that holds the program as /skerry for the worker's architecture."`
	Window spec.Duration `json:"window,omitempty" doc:"Time by which the new program must work as well as the old one. Default: 2m; at most 1h."`
	Steady spec.Duration `json:"steady,omitempty" doc:"How long the new program must work without interruption. Default: 15s."`
}

// DrainView tells how far a worker is with being drained.
type DrainView struct {
	Since    time.Time         `json:"since"`
	To       skerry.WorkerName `json:"to,omitempty" doc:"Preferred destination."`
	Parallel int               `json:"parallel" doc:"Number of concurrent migrations."`
	Left     int               `json:"left" doc:"Instances still to be moved."`
	Moving   int               `json:"moving" doc:"Instances among those left whose copy is being started elsewhere."`
	Ending   int               `json:"ending" doc:"Old copies that are being stopped."`
	Done     bool              `json:"done,omitempty" doc:"Everything that can be moved has been moved."`
	Stays    []StayView        `json:"stays,omitempty"`
}

// StayView is an instance that stays where it is, on a worker that is drained or though another would be better.
type StayView struct {
	Instance skerry.InstanceID `json:"instance"`
	Reason   string            `json:"reason"`
	Tries    bool              `json:"tries,omitempty" doc:"Whether the search for a place continues."`
}

// RebalancePlan tells what a site moves, or would, to clearly better places: one after the other, in this order, as far as nothing else changes meanwhile.
type RebalancePlan struct {
	Moves []RebalanceMove `json:"moves,omitempty"`
	Stays []StayView      `json:"stays,omitempty" doc:"Instances that would be better placed elsewhere but are not moved, with the reason."`
}

// RebalanceMove is one of them.
type RebalanceMove struct {
	Instance skerry.InstanceID `json:"instance"`
	Service  skerry.ServiceKey `json:"service"`
	From     skerry.WorkerName `json:"from"`
	To       skerry.WorkerName `json:"to"`
	Gain     float64           `json:"gain" doc:"How much better the new place is, from 0 to 1."`
	Why      string            `json:"why"`
}

// WorkerView is what a site shows of a worker to its own operator.
type WorkerView struct {
	Name      skerry.WorkerName `json:"name"`
	Connected bool              `json:"connected"`
	Lost      bool              `json:"lost,omitempty"`
	Verdict   string            `json:"verdict,omitempty" doc:"For a lost worker, what other workers found out about it."`
	CutOff    bool              `json:"cutOff,omitempty" doc:"It is lost, but another worker can reach it."`
	Beats     bool              `json:"beats,omitempty" doc:"Whether its heartbeats arrive, small datagrams beside its connection."`
	Carrier   string            `json:"carrier,omitempty" doc:"mqtt for an external agent, which is judged by its MQTT connection alone and has no heartbeats or streams. Empty for a worker with its own link."`
	Since     time.Time         `json:"since,omitzero"`
	Cordon    string            `json:"hold,omitempty" doc:"Why an operator cordoned it."`
	Drain     *DrainView        `json:"drain,omitempty" doc:"Progress of the drain, if it is being drained."`
	Frozen    string            `json:"held,omitempty" doc:"Why it is frozen on its device: it carries out no requests from its cluster."`
	Refusing  string            `json:"refusing,omitempty" doc:"Why it accepts no new instances."`
	Facts     *wire.WorkerFacts `json:"facts,omitempty"`
	Reserved  spec.Resources    `json:"reserved"`
	Available spec.Resources    `json:"available"`
	Used      spec.Resources    `json:"used"`
	ReportAt  time.Time         `json:"reportAt,omitzero"`
	// Coordinate is where the worker is in the network; nil while it is not known.
	Coordinate *spec.Coordinate `json:"coordinate,omitempty" doc:"Network coordinate in milliseconds. error is relative; 1 means unknown."`
	Instances  int              `json:"instances"`
	Version    string           `json:"version,omitempty"`
	Machine    string           `json:"machine,omitempty"`
	Upgrade    *wire.AgentOrder `json:"upgrade,omitempty" doc:"Last requested upgrade of its agent. facts.agent shows the progress."`
	Updates    *UpdatesView     `json:"updates,omitempty" doc:"How often it reports. Absent if its agent does not say."`
	Trust      *CreditView      `json:"credit,omitempty" doc:"Disputed claims. Absent if there are none."`
	Claims     *spec.Resources  `json:"claims,omitempty" doc:"Claimed capacity, if the claim is not trusted; facts.capacity is used instead. skerry uncordon accepts the claim."`
}

// HistoryQuery asks for a history: of the site, and of its workers too with Workers; or of one worker.
type HistoryQuery struct {
	Worker     string
	Workers    bool
	Span, Step time.Duration // whole minutes
}

// History is what a site and its workers used in the last day.
type History struct {
	StepMinutes int             `json:"stepMinutes" doc:"Minutes from one point to the next."`
	Series      []HistorySeries `json:"series" doc:"The site first, then workers by name."`
	Left        int             `json:"left,omitempty" doc:"Number of workers without a history of their own: the site keeps that of 64."`
}

// HistorySeries is the history of a worker, or of the site.
type HistorySeries struct {
	Worker   skerry.WorkerName `json:"worker,omitempty" doc:"Absent for the whole site, which has the sums of its workers."`
	Capacity spec.Resources    `json:"capacity" doc:"Present capacity."`
	Points   []HistoryPoint    `json:"points" doc:"Oldest first. A step in which nothing was read has no point."`
}

// HistoryPoint is what was used in one step.
type HistoryPoint struct {
	At        time.Time       `json:"at" doc:"When the step begins."`
	CPU       skerry.MilliCPU `json:"cpu" doc:"Mean, of the whole machine."`
	Memory    skerry.Bytes    `json:"memory" doc:"Mean, of the whole machine."`
	Storage   skerry.Bytes    `json:"storage" doc:"Mean, on the file system of the worker's data directory."`
	Instances int             `json:"instances" doc:"Smallest number of running instances."`
	Restarts  int             `json:"restarts,omitempty" doc:"Restarts of instances."`
	RTTMs     float64         `json:"rttMs,omitempty" doc:"Mean round trip in milliseconds, to the site, or of the site to its root."`
	Workers   int             `json:"workers" doc:"Smallest number of workers in touch."`
}

// UpdatesView is how often a worker reports, which adapts between 1 s and 60 s.
type UpdatesView struct {
	EveryMs uint32 `json:"everyMs" doc:"Recent interval between reports in milliseconds; 0 at the start."`
	Why     string `json:"why" doc:"idle, change, limit, link, metered or fixed."`
	Gain    uint32 `json:"gain" doc:"Factor by which changes weigh more because a limit is near, from 1 to 8."`
	Near    string `json:"near,omitempty" doc:"The limit that is near."`
}

// CreditView is what speaks against what a worker or a cluster says.
type CreditView struct {
	Rank       float64      `json:"rank" doc:"Factor applied to its score in placement, above 0 and at most 1."`
	Quarantine string       `json:"quarantine,omitempty" doc:"Why it receives no new instances. skerry uncordon ends the quarantine."`
	Since      time.Time    `json:"since,omitzero" doc:"When the quarantine began."`
	Until      time.Time    `json:"until,omitzero" doc:"When the quarantine ends by itself if nothing more is counted."`
	Marks      []CreditMark `json:"marks,omitempty"`
}

// CreditMark is what speaks against a member in one respect.
type CreditMark struct {
	Kind    string    `json:"kind" doc:"capacity, use, starts, place, replays, tokens, counts or refusals."`
	Text    string    `json:"text"`
	Marks   int       `json:"marks" doc:"Total number of times this was counted."`
	Last    time.Time `json:"last"`
	For     float64   `json:"for,omitempty" doc:"Evidence in its favour in the same respect, decayed over time."`
	Against float64   `json:"against" doc:"The marks, decayed over time: they halve every half hour, and each quarantine doubles that time."`
}

// Explanation tells how an instance came to where it is, or why it is nowhere.
type Explanation struct {
	Instance wire.Instance  `json:"instance"`
	Decision *wire.Decision `json:"decision,omitempty"`
	Deadline time.Time      `json:"deadline,omitzero"`
	RetryAt  time.Time      `json:"retryAt,omitzero"`
	Tried    []string       `json:"tried,omitempty"`
	// Scale tells why its service has so many instances, where their number follows the load.
	Scale *ScaleView `json:"scale,omitempty"`
	// Classes tells how each class of workers stands to the service now; only a cluster knows.
	Classes []wire.ClassVerdict `json:"classes,omitempty"`
	// Runtimes tells how each runtime stands to the service, the cheapest first, and what it costs.
	Runtimes []spec.RuntimeChoice `json:"runtimes,omitempty"`
}

// ImageView is an image of the built-in registry.
type ImageView struct {
	Name      string       `json:"name" doc:"Repository and tag."`
	Digest    string       `json:"digest"`
	Size      skerry.Bytes `json:"size" doc:"Size of what is stored here. Shared layers are counted once."`
	Platforms []string     `json:"platforms,omitempty"`
	Added     time.Time    `json:"added,omitzero"`
	LastUsed  time.Time    `json:"lastUsed,omitzero" doc:"When it was last pushed or pulled by this name."`
	// Copies is nil where no process stands by.
	Copies *ImageCopies `json:"copies,omitempty" doc:"Copies at processes that stand by. Absent without these, and with a bucket."`
	ImageUse
}

// ImageCopies counts the processes that stand by for a role and have a copy of an image.
type ImageCopies struct {
	Have int `json:"have"`
	Of   int `json:"of" doc:"The processes that stand by, or did within the last day."`
}

// ImageStandby is a process that stands by for a role, as far as the role's images are concerned.
type ImageStandby struct {
	Name      string    `json:"name,omitempty"`
	Connected bool      `json:"connected"`
	Images    int       `json:"images"`            // that it has
	Missing   int       `json:"missing,omitempty"` // that it lacks, as it told last
	Why       string    `json:"why,omitempty"`
	Heard     time.Time `json:"heard,omitzero"`
}

// ImageUse says what an image is used for, as far as this server knows.
type ImageUse struct {
	UsedBy  []string `json:"usedBy,omitempty" doc:"Services that run it. Only users who may delete the image see them, and only those whose application they may read."`
	KeptFor []string `json:"keptFor,omitempty" doc:"Services with an earlier version that runs it; shown like usedBy."`
}

// Scrape is an instance that offers Prometheus metrics.
type Scrape struct {
	Instance wire.Instance `json:"instance"`
	Metrics  spec.Metrics  `json:"metrics"`
}

// Unadmitted is an instance that a site runs and would not take today, by its admission policy of now; or, without an instance, what a
// service or an organisation has that takes no effect or would be refused today.
type Unadmitted struct {
	Instance skerry.InstanceID  `json:"instance,omitempty"`
	Service  skerry.ServiceKey  `json:"service,omitzero"`
	Org      string             `json:"org"`
	Level    spec.SecurityLevel `json:"level,omitempty" doc:"For an instance, the security level the site grants its organisation."`
	Reason   wire.Reason        `json:"reason" doc:"Why it would be refused, or what it has that a new one would not get."`
}
