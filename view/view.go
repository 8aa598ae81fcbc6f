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
	Origin    string            `json:"origin" doc:"The tier that the application belongs to: root or cluster."`
	CreatedAt time.Time         `json:"createdAt,omitzero"`
	UpdatedAt time.Time         `json:"updatedAt,omitzero"`
	Author    string            `json:"author,omitempty"`
	Status    string            `json:"status" doc:"Registered, Progressing, Ready, RolledBack, Degraded, Deleting or Completed. RolledBack: it runs, but a version failed and was taken back."`
	Reason    string            `json:"reason,omitempty" doc:"Why it is not as it should be: a code word, and a text."`
	Network   wire.NetworkID    `json:"network,omitempty" doc:"Of its services in the overlay."`
	Services  []ServiceView     `json:"services"`
	// Amended is how the site that tells this has changed it while the root is away.
	Amended  *wire.AmendmentView `json:"amended,omitempty" doc:"What this site was changed to while the root is away; the root decides about it when it is back."`
	Manifest *spec.Application   `json:"manifest,omitempty"`
	// Revisions are the versions that are kept, the present one first. They are told where the manifest is.
	Revisions []RevisionView `json:"revisions,omitempty" doc:"The present version and the earlier ones that are kept, newest first."`
}

// ServiceView is a service with how many of its instances there are.
type ServiceView struct {
	Name      string       `json:"name"`
	Mode      spec.Mode    `json:"mode"`
	Image     string       `json:"image,omitempty"`
	Digest    string       `json:"digest,omitempty"`
	Revision  string       `json:"revision,omitempty"`
	Want      int          `json:"want"`
	Scale     *ScaleView   `json:"scale,omitempty" doc:"Autoscaling status, if the number of instances follows the load."`
	Ready     int          `json:"ready"`
	UpToDate  int          `json:"upToDate"`
	Instances int          `json:"instances"`
	Restarts  int          `json:"restarts"`
	Reason    string       `json:"reason,omitempty" doc:"Why it is not as it should be: a code word, and a text."`
	QoS       *wire.QoS    `json:"qos,omitempty"`
	Runs      []RunView    `json:"runs,omitempty"`
	Rollout   *RolloutView `json:"rollout,omitempty" doc:"Progress of the newest version; of services only."`
	// CrashLoops counts the instances that end again and again soon after their start.
	CrashLoops int `json:"crashLoops,omitempty" doc:"Instances that end again and again soon after their start."`
	// OutOfTouch counts those that ran, and of which nobody knows whether they are ready.
	OutOfTouch int  `json:"outOfTouch,omitempty" doc:"Running instances whose worker or site is out of touch; they do not count as ready."`
	Probed     bool `json:"probed,omitempty" doc:"It has a readiness or startup probe; without one, ready means that the program runs."`
	// Addresses are its service addresses in its own application.
	Addresses *wire.NetworkService `json:"addresses,omitempty"`
	Ingress   []IngressView        `json:"ingress,omitempty" doc:"Ingresses: how clients outside reach services."`
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
	Tier string        `json:"tier" doc:"root or cluster; a root's plan names clusters, a cluster's names workers."`
	List []PlannedCopy `json:"instances"`
	Lost []string      `json:"lost,omitempty" doc:"What goes for good, in words: data in local volumes that the manifest no longer has."`
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
	Instance skerry.InstanceID `json:"instance,omitempty" doc:"Of one that exists and would stay."`
	Cluster  string            `json:"cluster,omitempty"`
	Worker   string            `json:"worker,omitempty"`
	Kept     bool              `json:"kept,omitempty"`
	Resized  string            `json:"resized,omitempty" doc:"It stays, and its limits change while it runs where its worker can: from what to what."`
	Copies   int               `json:"copies,omitempty" doc:"Of a perWorker service: workers that fit."`
	Decision *wire.Decision    `json:"decision,omitempty"`
}

// ClusterView is what the root shows of a site: aggregates only.
type ClusterView struct {
	Name      skerry.ClusterName `json:"name"`
	Connected bool               `json:"connected"`
	Lost      bool               `json:"lost,omitempty" doc:"It has been disconnected for so long that its instances are started elsewhere."`
	Since     time.Time          `json:"since,omitzero"`
	Version   string             `json:"version,omitempty"`
	Report    wire.ClusterReport `json:"report"`
	ReportAt  time.Time          `json:"reportAt,omitzero"`
	Instances int                `json:"instances"`
	Credit    *CreditView        `json:"credit,omitempty" doc:"Disputed claims; missing if there are none."`
}

// DrainRequest asks for a worker to be drained.
type DrainRequest struct {
	Reason   string `json:"reason,omitempty" maxLength:"200" doc:"Why, for people."`
	Parallel int    `json:"parallel,omitempty" minimum:"0" maximum:"100" doc:"Migrations at once. Default: 1."`
	To       string `json:"to,omitempty" maxLength:"63" doc:"A preferred worker."`
	Force    bool   `json:"force,omitempty" doc:"Also move instances that keep data on the worker; the data is lost."`
}

// MigrateRequest asks for an instance to be moved to another place, where it is ready before it ends at the first one.
type MigrateRequest struct {
	To     string `json:"to,omitempty" maxLength:"63" doc:"The worker, at the root the cluster, that it is to move to. Default: the best other worker of its site."`
	Reason string `json:"reason,omitempty" maxLength:"200" doc:"Why, for people."`
	Force  bool   `json:"force,omitempty" doc:"Move it even if it keeps data on its worker; the data is lost."`
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
	Worker   skerry.WorkerName  `json:"worker,omitempty" doc:"Worker on which the copy starts. The root does not know it."`
	Cluster  skerry.ClusterName `json:"cluster,omitempty" doc:"Cluster within which, or to which, it moves, at the root."`
	Copy     skerry.InstanceID  `json:"copy,omitempty" doc:"The instance that takes its place at another cluster, once it is ready."`
}

// UpgradeRequest has a worker's agent go over to another program.
type UpgradeRequest struct {
	Image  string        `json:"image" minLength:"1" maxLength:"512" doc:"Image that has the program as /skerry, for the worker's architecture."`
	Window spec.Duration `json:"window,omitempty" doc:"Time within which the new program must do as well as the old one. Default: 2m; at most 1h."`
	Steady spec.Duration `json:"steady,omitempty" doc:"For how long without a break. Default: 15s."`
}

// DrainView tells how far a worker is with being drained.
type DrainView struct {
	Since    time.Time         `json:"since"`
	To       skerry.WorkerName `json:"to,omitempty" doc:"The worker that is preferred."`
	Parallel int               `json:"parallel" doc:"Migrations at once."`
	Left     int               `json:"left" doc:"Instances that are still to leave."`
	Moving   int               `json:"moving" doc:"Of these, those whose copy elsewhere is being started."`
	Ending   int               `json:"ending" doc:"Old copies that are being ended."`
	Done     bool              `json:"done,omitempty" doc:"Everything that can leave has left."`
	Stays    []StayView        `json:"stays,omitempty"`
}

// StayView is an instance that stays where it is, on a worker that is drained or though another would be better.
type StayView struct {
	Instance skerry.InstanceID `json:"instance"`
	Reason   string            `json:"reason"`
	Tries    bool              `json:"tries,omitempty" doc:"The search for a place continues."`
}

// RebalancePlan tells what a site moves, or would, to clearly better places: one after the other, in this order, as far as nothing else changes meanwhile.
type RebalancePlan struct {
	Moves []RebalanceMove `json:"moves,omitempty"`
	Stays []StayView      `json:"stays,omitempty" doc:"Instances that would be better off elsewhere and are not moved, with the reason."`
}

// RebalanceMove is one of them.
type RebalanceMove struct {
	Instance skerry.InstanceID `json:"instance"`
	Service  skerry.ServiceKey `json:"service"`
	From     skerry.WorkerName `json:"from"`
	To       skerry.WorkerName `json:"to"`
	Gain     float64           `json:"gain" doc:"By how much the place is better, from 0 to 1."`
	Why      string            `json:"why"`
}

// WorkerView is what a site shows of a worker to its own operator.
type WorkerView struct {
	Name      skerry.WorkerName `json:"name"`
	Connected bool              `json:"connected"`
	Lost      bool              `json:"lost,omitempty"`
	Verdict   string            `json:"verdict,omitempty" doc:"Of a lost worker: what others found out about it."`
	CutOff    bool              `json:"cutOff,omitempty" doc:"It is lost, and another worker reaches it."`
	Beats     bool              `json:"beats,omitempty" doc:"Its heartbeats arrive: small datagrams in addition to its connection."`
	Carrier   string            `json:"carrier,omitempty" doc:"mqtt: an agent of others, judged by its MQTT connection alone, without beats and streams; empty: the link."`
	Since     time.Time         `json:"since,omitzero"`
	Hold      string            `json:"hold,omitempty" doc:"Why an operator keeps new work away."`
	Drain     *DrainView        `json:"drain,omitempty" doc:"Progress of the drain, if it is being drained."`
	Held      string            `json:"held,omitempty" doc:"Reason why it is frozen on its device: it carries out no request of its cluster."`
	Refusing  string            `json:"refusing,omitempty" doc:"Why it takes nothing new."`
	Facts     *wire.WorkerFacts `json:"facts,omitempty"`
	Reserved  spec.Resources    `json:"reserved"`
	Available spec.Resources    `json:"available"`
	Used      spec.Resources    `json:"used"`
	ReportAt  time.Time         `json:"reportAt,omitzero"`
	// Coordinate is where the worker is in the network; nil while it is not known.
	Coordinate *spec.Coordinate `json:"coordinate,omitempty" doc:"Place in the network, in milliseconds; error is relative, 1 knows nothing."`
	Instances  int              `json:"instances"`
	Version    string           `json:"version,omitempty"`
	Machine    string           `json:"machine,omitempty"`
	Upgrade    *wire.AgentOrder `json:"upgrade,omitempty" doc:"The last program that its agent was told to upgrade to; facts.agent shows the progress."`
	Updates    *UpdatesView     `json:"updates,omitempty" doc:"How often it reports; missing where its agent does not say."`
	Credit     *CreditView      `json:"credit,omitempty" doc:"Disputed claims; missing if there are none."`
	Claims     *spec.Resources  `json:"claims,omitempty" doc:"Claimed capacity, if it is not trusted: facts.capacity counts instead. skerry uncordon accepts the claim."`
}

// UpdatesView is how often a worker reports, which adapts between 1 s and 60 s.
type UpdatesView struct {
	EveryMs uint32 `json:"everyMs" doc:"From report to report of late, in milliseconds; 0: it has just begun."`
	Why     string `json:"why" doc:"idle, change, limit, link, metered or fixed."`
	Gain    uint32 `json:"gain" doc:"By how much a change counts for more because a limit is near, 1 to 8."`
	Near    string `json:"near,omitempty" doc:"That limit."`
}

// CreditView is what speaks against what a worker or a cluster says.
type CreditView struct {
	Rank       float64      `json:"rank" doc:"By how much its score counts when something is placed, above 0 and at most 1."`
	Quarantine string       `json:"quarantine,omitempty" doc:"Why it gets no new instances; skerry uncordon ends the quarantine."`
	Since      time.Time    `json:"since,omitzero" doc:"Of the quarantine."`
	Until      time.Time    `json:"until,omitzero" doc:"When the quarantine ends by itself if nothing more comes."`
	Marks      []CreditMark `json:"marks,omitempty"`
}

// CreditMark is what speaks against a member in one respect.
type CreditMark struct {
	Kind    string    `json:"kind" doc:"capacity, use, starts, place, replays, tokens, counts or refusals."`
	Text    string    `json:"text"`
	Marks   int       `json:"marks" doc:"How often that was counted, ever."`
	Last    time.Time `json:"last"`
	For     float64   `json:"for,omitempty" doc:"Evidence in its favour in the same respect, decayed over time."`
	Against float64   `json:"against" doc:"The marks, less what is forgotten: half of it in half an hour, and in twice the time after each quarantine."`
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
	Size      skerry.Bytes `json:"size" doc:"Of what is kept here, layers that are shared counted once."`
	Platforms []string     `json:"platforms,omitempty"`
	Added     time.Time    `json:"added,omitzero"`
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
	Level    spec.SecurityLevel `json:"level,omitempty" doc:"What the site grants the organisation now, if it is about an instance."`
	Reason   wire.Reason        `json:"reason" doc:"Why it would be refused, or what it has that new ones would not."`
}
