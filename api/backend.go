// Package api serves the REST interface of root and cluster and holds its client. It knows people, scopes and HTTP;
// what is done is the business of the Backend. Main, ctl and tests import it.
package api

import (
	"context"
	"io"
	"net/http"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// Backend is a role's server as the API sees it. Errors are *skerry.Error where a user can do something about them.
type Backend interface {
	Tier() wire.Tier // root or cluster
	Name() string    // the cluster's name; the federation's at the root
	// Do carries out a user's message (package apps) once it is persisted. Images of an apps.Apply are resolved to
	// digests on the way.
	Do(ctx context.Context, msg any) (any, error)

	// AppPage gives a part of the applications, in the order of their keys, and whether there are more after it. A root sums up those of the
	// page alone: of 1,000 with two services each that takes a core some 10 ms of a processor (root/core BenchmarkLists).
	AppPage(ctx context.Context, page apps.AppPage) ([]view.AppView, bool, error)
	// App shows one with its manifest: as it is (0), or as it was in a generation that is kept.
	App(ctx context.Context, key skerry.AppKey, gen skerry.Generation) (view.AppView, error)
	// Instances and the other lists without a page of their own are made whole for each page.
	Instances(ctx context.Context) ([]wire.Instance, error)
	// InstancePage gives a part of them, in the order of their IDs, and whether there are more after it.
	InstancePage(ctx context.Context, page apps.InstancePage) ([]wire.Instance, bool, error)
	Instance(ctx context.Context, id skerry.InstanceID) (wire.Instance, error)
	// Explain shows it with what its place follows from. That costs a look at all clusters, or workers.
	Explain(ctx context.Context, id skerry.InstanceID) (view.Explanation, error)
	// Classes tells how each class of workers stands to an instance now; the root knows none and gives nothing.
	Classes(ctx context.Context, id skerry.InstanceID) ([]wire.ClassVerdict, error)
	// Plan tells where the instances of a manifest would go, changing nothing.
	Plan(ctx context.Context, app spec.Application) (view.Plan, error)
	// Scrapes lists the instances whose service declares metrics.
	Scrapes(ctx context.Context) ([]view.Scrape, error)
	Orgs(ctx context.Context) ([]apps.Org, error)
	Namespaces(ctx context.Context) ([]apps.Namespace, error)
	Usage(ctx context.Context, org string) (apps.Usage, error)
	// Certificates lists the certificates of an organisation for ingresses. IngressAuthority gives, as PEM, the certificate
	// by which clients know ingresses without one of their own; each cluster has its own, the root none.
	Certificates(ctx context.Context, org string) ([]view.CertificateView, error)
	IngressAuthority(ctx context.Context) ([]byte, error)
	// Secrets lists the secrets of a namespace, without what they hold. Do takes apps.PutSecret with it, seals it and forgets it.
	Secrets(ctx context.Context, namespace string) ([]view.SecretView, error)

	// Volumes lists the local volumes of replicas, with those that outlived their application.
	Volumes(ctx context.Context) ([]view.VolumeView, error)

	// Orphans lists what runs, or is kept by workers, and is not known or taken up; Do takes apps.DecideOrphan for one.
	Orphans(ctx context.Context) ([]view.Orphan, error)

	Journal() *journal.Journal
	// Clusters answers at the root, Workers at a cluster; the other gives an error of code wrong-tier.
	Clusters(ctx context.Context) ([]view.ClusterView, error)
	Workers(ctx context.Context) ([]view.WorkerView, error)
	// RemoveChild forgets a child that is not connected, and revokes it.
	RemoveChild(ctx context.Context, name, actor string) error
	// Disconnect ends a child's connection; one that is still enrolled may come back.
	Disconnect(name string)
	// TrustCluster has a cluster believed again, whatever was counted against it, and ends its quarantine.
	TrustCluster(ctx context.Context, name string) error
	// CordonCluster keeps new instances from a cluster; an empty reason ends that, a drain and a quarantine. DrainCluster has what can
	// leave it. Both are about what the root places.
	CordonCluster(ctx context.Context, name, reason string) error
	DrainCluster(ctx context.Context, name string, r view.ClusterDrainRequest) error
	// LabelCluster changes the labels of a cluster, by which manifests select it.
	LabelCluster(ctx context.Context, name string, change view.ClusterLabels) error
	// Upgrades lists the upgrades of clusters in waves; the other four show one, begin one, pause, resume or abort it, and forget it.
	Upgrades(ctx context.Context) ([]view.Upgrade, error)
	Upgrade(ctx context.Context, name string) (view.Upgrade, error)
	StartUpgrade(ctx context.Context, plan view.UpgradePlan, by string) (view.Upgrade, error)
	ChangeUpgrade(ctx context.Context, name string, to view.UpgradeState, by string) error
	RemoveUpgrade(ctx context.Context, name string) error
	// CordonWorker keeps new work from a worker; an empty reason ends that.
	CordonWorker(ctx context.Context, name, reason string) error
	// DrainWorker has everything that can leave a worker; CordonWorker without a reason ends that.
	DrainWorker(ctx context.Context, name string, r view.DrainRequest) error
	// Migrate moves one instance, make before break. It is by the actor, who may name the place that they ask for.
	Migrate(ctx context.Context, id skerry.InstanceID, r view.MigrateRequest, actor string) (view.Migrating, error)
	// Rebalance moves what runs to clearly better places, or tells what it would.
	Rebalance(ctx context.Context, dryRun bool) (view.RebalancePlan, error)
	// Unadmitted lists what is there and would be refused, or takes no effect, today.
	Unadmitted(ctx context.Context) ([]view.Unadmitted, error)
	// WorkerOverlay asks a worker how it fares in the overlay.
	WorkerOverlay(ctx context.Context, name string) (view.OverlayView, error)
	// History shows what the site, or a worker, used in the last day.
	History(ctx context.Context, q view.HistoryQuery) (view.History, error)
	// UpgradeWorker has a worker's agent go over to another program.
	UpgradeWorker(ctx context.Context, name string, r view.UpgradeRequest) error
	// Grants lists what a cluster lets the users of its root do there, and SetGrant gives or takes back something of that.
	Grants(ctx context.Context) ([]wire.Granted, error)
	SetGrant(ctx context.Context, g wire.Grant, given bool, by string) error
	// AskSite passes a request of a user of the root on to a cluster, which decides whether it answers, and reads the answer into out, if
	// not nil.
	AskSite(ctx context.Context, cluster string, q view.SiteRequest, out any) error

	// Authority makes tokens and lists and revokes children.
	Authority() *auth.Authority
	// ServeInstance passes a request on to the worker that runs an instance. rest is the path below the instance:
	// "/logs", "/exec", "/portforward", "/stats", "/metrics". The caller has checked that the user may.
	ServeInstance(w http.ResponseWriter, r *http.Request, id skerry.InstanceID, rest string)
	// Registry serves the OCI distribution API of the built-in registry below /v2/.
	Registry() http.Handler
	// WriteMetrics writes the role's Prometheus text.
	WriteMetrics(ctx context.Context, w io.Writer)
	// Ready gives nil, or why the role cannot do its work now.
	Ready() error
	Started() time.Time
}

// ImageLister is what a Backend's Registry may be able to do beside.
type ImageLister interface {
	ListImages(ctx context.Context) ([]view.ImageView, error)
	// Clear removes what was uploaded to a namespace and is part of no image, and returns the name of an image that is left there, or "".
	Clear(namespace string) (image string, err error)
}
