package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (out T, err error) {
	err = c.do(ctx, http.MethodGet, path, q, nil, &out)
	return out, err
}

func list[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, error) {
	out, err := get[List[T]](ctx, c, path, q)
	return out.Items, err
}

func send[T any](ctx context.Context, c *Client, method, path string, q url.Values, in any) (out T, err error) {
	err = c.do(ctx, method, path, q, in, &out)
	return out, err
}

// query makes a query of pairs, leaving out those whose value is empty.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func flag(b bool) string {
	if b {
		return "true"
	}
	return ""
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// Version tells what the server is. It needs no login.
func (c *Client) Version(ctx context.Context) (out Version, err error) {
	err = c.send(ctx, http.MethodGet, "/v1/version", nil, nil, &out, false)
	return out, err
}

// Whoami tells who is logged in.
func (c *Client) Whoami(ctx context.Context) (Who, error) {
	return get[Who](ctx, c, "/v1/auth/whoami", nil)
}

// Roles tells what each role may do.
func (c *Client) Roles(ctx context.Context) ([]RoleView, error) {
	return list[RoleView](ctx, c, "/v1/roles", nil)
}

// ChangePassword changes the own password.
func (c *Client) ChangePassword(ctx context.Context, old, password string) error {
	return c.do(ctx, http.MethodPost, "/v1/auth/password", nil, map[string]string{"old": old, "new": password}, nil)
}

// AccessTokens lists a user's access tokens: the own if user is empty, everybody's if it is *.
func (c *Client) AccessTokens(ctx context.Context, user string) ([]auth.AccessToken, error) {
	return list[auth.AccessToken](ctx, c, "/v1/access-tokens", query("user", user))
}

// AccessTokenRequest asks for an access token.
type AccessTokenRequest struct {
	Name   string        `json:"name"`
	TTL    spec.Duration `json:"ttl,omitempty"`
	Scopes []auth.Scope  `json:"scopes,omitempty"`
	User   string        `json:"user,omitempty"`
}

// CreateAccessToken makes an access token.
func (c *Client) CreateAccessToken(ctx context.Context, r AccessTokenRequest) (NewAccessToken, error) {
	return send[NewAccessToken](ctx, c, http.MethodPost, "/v1/access-tokens", nil, r)
}

// DeleteAccessToken takes an access token back, by id or own name.
func (c *Client) DeleteAccessToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/access-tokens/"+esc(id), nil, nil, nil)
}

// Users lists the users.
func (c *Client) Users(ctx context.Context) ([]auth.User, error) {
	return list[auth.User](ctx, c, "/v1/users", nil)
}

// User shows a user.
func (c *Client) User(ctx context.Context, name string) (auth.User, error) {
	return get[auth.User](ctx, c, "/v1/users/"+esc(name), nil)
}

// CreateUser makes a user.
func (c *Client) CreateUser(ctx context.Context, name, password string, grants []auth.Grant) (auth.User, error) {
	return send[auth.User](ctx, c, http.MethodPost, "/v1/users", nil, map[string]any{"name": name, "password": password, "grants": grants})
}

// ChangeUser changes a user.
func (c *Client) ChangeUser(ctx context.Context, name string, p UserPatch) (auth.User, error) {
	return send[auth.User](ctx, c, http.MethodPatch, "/v1/users/"+esc(name), nil, p)
}

// EnrolTOTP makes a secret for one's own one-time codes.
func (c *Client) EnrolTOTP(ctx context.Context, password string) (auth.TOTPSecret, error) {
	return send[auth.TOTPSecret](ctx, c, http.MethodPost, "/v1/auth/totp", nil, map[string]string{"password": password})
}

// ConfirmTOTP enables them with the first code.
func (c *Client) ConfirmTOTP(ctx context.Context, code string) (RecoveryCodes, error) {
	return send[RecoveryCodes](ctx, c, http.MethodPost, "/v1/auth/totp/confirm", nil, map[string]string{"otp": code})
}

// RemoveTOTP disables them.
func (c *Client) RemoveTOTP(ctx context.Context, password, code string) error {
	return c.do(ctx, http.MethodPost, "/v1/auth/totp/remove", nil, map[string]string{"password": password, "otp": code}, nil)
}

// ResetTOTP disables those of another user.
func (c *Client) ResetTOTP(ctx context.Context, user string) error {
	return c.do(ctx, http.MethodDelete, "/v1/users/"+esc(user)+"/totp", nil, nil, nil)
}

// DeleteUser removes a user.
func (c *Client) DeleteUser(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/users/"+esc(name), nil, nil, nil)
}

// Orgs lists the organisations.
func (c *Client) Orgs(ctx context.Context) ([]apps.Org, error) {
	return list[apps.Org](ctx, c, "/v1/orgs", nil)
}

// CreateOrg makes an organisation.
func (c *Client) CreateOrg(ctx context.Context, o apps.Org) (apps.Org, error) {
	return send[apps.Org](ctx, c, http.MethodPost, "/v1/orgs", nil, o)
}

// DeleteOrg removes an organisation.
func (c *Client) DeleteOrg(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/orgs/"+esc(name), nil, nil, nil)
}

// SetQuota sets an organisation's quota.
func (c *Client) SetQuota(ctx context.Context, org string, q apps.Quota) (apps.Org, error) {
	return send[apps.Org](ctx, c, http.MethodPut, "/v1/orgs/"+esc(org)+"/quota", nil, q)
}

// Usage sums what an organisation asks for.
func (c *Client) Usage(ctx context.Context, org string) (apps.Usage, error) {
	return get[apps.Usage](ctx, c, "/v1/orgs/"+esc(org)+"/usage", nil)
}

func certificates(org string) string { return "/v1/orgs/" + esc(org) + "/certificates" }

// Certificates lists the certificates of an organisation for ingresses.
func (c *Client) Certificates(ctx context.Context, org string) ([]view.CertificateView, error) {
	return list[view.CertificateView](ctx, c, certificates(org), nil)
}

// PutCertificate keeps a certificate with its key, in place of the one of that name.
func (c *Client) PutCertificate(ctx context.Context, org, name string, x Certificate) (view.CertificateView, error) {
	return send[view.CertificateView](ctx, c, http.MethodPut, certificates(org)+"/"+esc(name), nil, x)
}

// DeleteCertificate removes a certificate that no application names.
func (c *Client) DeleteCertificate(ctx context.Context, org, name string) error {
	return c.do(ctx, http.MethodDelete, certificates(org)+"/"+esc(name), nil, nil, nil)
}

func secrets(namespace string) string { return "/v1/namespaces/" + esc(namespace) + "/secrets" }

// Secrets lists the secrets of a namespace, without what they hold.
func (c *Client) Secrets(ctx context.Context, namespace string) ([]view.SecretView, error) {
	return list[view.SecretView](ctx, c, secrets(namespace), nil)
}

// PutSecret keeps a new secret or, with rotate, a new version of one.
func (c *Client) PutSecret(ctx context.Context, namespace, name string, rotate bool, v spec.SecretValue) (view.SecretView, error) {
	q := url.Values{}
	if rotate {
		q.Set("rotate", "true")
	}
	return send[view.SecretView](ctx, c, http.MethodPut, secrets(namespace)+"/"+esc(name), q, SecretData{v})
}

// UndoSecret has an earlier version of a secret used again: the one before the version in use if to is 0.
func (c *Client) UndoSecret(ctx context.Context, namespace, name string, to int) (view.SecretView, error) {
	q := url.Values{}
	if to != 0 {
		q.Set("to", strconv.Itoa(to))
	}
	return send[view.SecretView](ctx, c, http.MethodPost, secrets(namespace)+"/"+esc(name)+"/undo", q, nil)
}

// DeleteSecret removes a secret that no service names.
func (c *Client) DeleteSecret(ctx context.Context, namespace, name string) error {
	return c.do(ctx, http.MethodDelete, secrets(namespace)+"/"+esc(name), nil, nil, nil)
}

// IngressAuthority gives the certificate by which clients know the ingresses of a cluster with tls: self.
func (c *Client) IngressAuthority(ctx context.Context) (IngressAuthority, error) {
	return get[IngressAuthority](ctx, c, "/v1/ingress/authority", nil)
}

// Namespaces lists the namespaces.
func (c *Client) Namespaces(ctx context.Context) ([]apps.Namespace, error) {
	return list[apps.Namespace](ctx, c, "/v1/namespaces", nil)
}

// CreateNamespace makes a namespace.
func (c *Client) CreateNamespace(ctx context.Context, n apps.Namespace) (apps.Namespace, error) {
	return send[apps.Namespace](ctx, c, http.MethodPost, "/v1/namespaces", nil, n)
}

// DeleteNamespace removes a namespace.
func (c *Client) DeleteNamespace(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/namespaces/"+esc(name), nil, nil, nil)
}

// Apps lists the applications, of one namespace if it is given.
func (c *Client) Apps(ctx context.Context, namespace string) ([]view.AppView, error) {
	return pages[view.AppView](ctx, c, "/v1/apps", query("namespace", namespace))
}

func appPath(k skerry.AppKey) string { return "/v1/apps/" + esc(k.Namespace) + "/" + esc(k.Name) }

func servicePath(k skerry.ServiceKey) string { return appPath(k.App) + "/services/" + esc(k.Service) }

// App shows an application with its manifest.
func (c *Client) App(ctx context.Context, k skerry.AppKey) (view.AppView, error) {
	return get[view.AppView](ctx, c, appPath(k), nil)
}

// AppVersion gives the manifest that an application has (0), or had in a generation that is kept, without defaults.
func (c *Client) AppVersion(ctx context.Context, k skerry.AppKey, gen skerry.Generation) (view.VersionView, error) {
	return get[view.VersionView](ctx, c, appPath(k)+"/manifest", query("generation", number(int(gen))))
}

// ApplyOptions say how to apply a manifest.
type ApplyOptions struct {
	Register bool              // store only
	DryRun   bool              // check only
	Expect   skerry.Generation // 0: whatever it is
}

// Apply creates or changes an application. data is one manifest, as YAML or JSON.
func (c *Client) Apply(ctx context.Context, data []byte, o ApplyOptions) (apps.Applied, error) {
	q := query("register", flag(o.Register), "dryRun", flag(o.DryRun), "expectGeneration", number(int(o.Expect)))
	return send[apps.Applied](ctx, c, http.MethodPost, "/v1/apps", q, rawBody{"application/yaml", data})
}

// Plan tells where the instances of a manifest would go. data is one manifest, as YAML or JSON.
func (c *Client) Plan(ctx context.Context, data []byte) (view.Plan, error) {
	return send[view.Plan](ctx, c, http.MethodPost, "/v1/plan", nil, rawBody{"application/yaml", data})
}

// DeleteApp ends an application.
func (c *Client) DeleteApp(ctx context.Context, k skerry.AppKey) error {
	return c.do(ctx, http.MethodDelete, appPath(k), nil, nil, nil)
}

// DeleteAppVolumes ends an application, with its local volumes if volumes says so, and tells what becomes of them. A server before volumes
// were kept deletes them, and tells nothing.
func (c *Client) DeleteAppVolumes(ctx context.Context, k skerry.AppKey, volumes bool) (d apps.Deleted, err error) {
	q := url.Values{}
	if volumes {
		q.Set("volumes", "true")
	}
	var body []byte
	if err = c.do(ctx, http.MethodDelete, appPath(k), q, nil, &body); err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &d)
	}
	return d, err
}

// Orphans lists the instances that run and that the server's store does not know, and what workers keep and it does not take up.
func (c *Client) Orphans(ctx context.Context) ([]view.Orphan, error) {
	return list[view.Orphan](ctx, c, "/v1/orphans", nil)
}

// AdoptOrphan makes an orphan an instance of its application again.
func (c *Client) AdoptOrphan(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/orphans/"+esc(name)+"/adopt", nil, nil, nil)
}

// DeleteOrphan ends an orphan, or deletes it from the worker that keeps it.
func (c *Client) DeleteOrphan(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/orphans/"+esc(name), nil, nil, nil)
}

// Volumes lists local volumes, of one namespace if it is given.
func (c *Client) Volumes(ctx context.Context, namespace string) ([]view.VolumeView, error) {
	return pages[view.VolumeView](ctx, c, "/v1/volumes", query("namespace", namespace))
}

// DeleteVolume deletes the local volumes of a replica, or one that it no longer has.
func (c *Client) DeleteVolume(ctx context.Context, v spec.VolumeClaim) error {
	return c.do(ctx, http.MethodDelete, volumePath(v), query("volume", v.Volume), nil, nil)
}

// Deploy deploys a registered application.
func (c *Client) Deploy(ctx context.Context, k skerry.AppKey) (apps.Applied, error) {
	return send[apps.Applied](ctx, c, http.MethodPost, appPath(k)+"/deploy", nil, nil)
}

// Restart restarts a service, or the whole application if the service is empty. pull has the images looked up again first.
func (c *Client) Restart(ctx context.Context, k skerry.ServiceKey, pull bool) (apps.Applied, error) {
	path := appPath(k.App)
	if k.Service != "" {
		path = servicePath(k)
	}
	var q url.Values
	if pull {
		q = url.Values{"pull": {"true"}}
	}
	return send[apps.Applied](ctx, c, http.MethodPost, path+"/restart", q, nil)
}

// Scale changes the number of instances of a service.
func (c *Client) Scale(ctx context.Context, k skerry.ServiceKey, replicas int) (apps.Applied, error) {
	return send[apps.Applied](ctx, c, http.MethodPut, servicePath(k)+"/scale", nil, map[string]int{"replicas": replicas})
}

// Rollout pauses, resumes or undoes the rollouts of a service, or of all of an application if the service's name is empty.
func (c *Client) Rollout(ctx context.Context, k skerry.ServiceKey, r RolloutRequest) (apps.Applied, error) {
	r.Service = k.Service
	return send[apps.Applied](ctx, c, http.MethodPost, appPath(k.App)+"/rollout", nil, r)
}

// InstanceFilter chooses instances; empty fields choose all.
type InstanceFilter struct{ Namespace, App, Service string }

// Instances lists instances.
func (c *Client) Instances(ctx context.Context, f InstanceFilter) ([]wire.Instance, error) {
	return pages[wire.Instance](ctx, c, "/v1/instances", query("namespace", f.Namespace, "app", f.App, "service", f.Service))
}

// FindPackages finds the instances whose images contain a package. q is a query of package sbom; fetch asks the images' registries, too.
func (c *Client) FindPackages(ctx context.Context, q string, f InstanceFilter, fetch bool) (view.PackageReport, error) {
	v := query("package", q, "namespace", f.Namespace, "app", f.App)
	if fetch {
		v.Set("fetch", "true")
	}
	return get[view.PackageReport](ctx, c, "/v1/packages", v)
}

func instancePath(id skerry.InstanceID) string { return "/v1/instances/" + esc(string(id)) }

// Instance shows an instance.
func (c *Client) Instance(ctx context.Context, id skerry.InstanceID) (wire.Instance, error) {
	return get[wire.Instance](ctx, c, instancePath(id), nil)
}

// DeleteInstance ends an instance; its service gets another.
func (c *Client) DeleteInstance(ctx context.Context, id skerry.InstanceID) error {
	return c.do(ctx, http.MethodDelete, instancePath(id), nil, nil, nil)
}

// MigrateInstance moves an instance to another worker, or from the root to another cluster.
func (c *Client) MigrateInstance(ctx context.Context, id skerry.InstanceID, r view.MigrateRequest) (view.Migrating, error) {
	return send[view.Migrating](ctx, c, http.MethodPost, instancePath(id)+"/migrate", nil, r)
}

// RestartOnDevice restarts an instance in place, through the worker that it is on; no other server takes that.
func (c *Client) RestartOnDevice(ctx context.Context, id skerry.InstanceID) error {
	return c.do(ctx, http.MethodPost, instancePath(id)+"/restart", nil, nil, nil)
}

// Explain tells how an instance came to where it is.
func (c *Client) Explain(ctx context.Context, id skerry.InstanceID) (view.Explanation, error) {
	return get[view.Explanation](ctx, c, instancePath(id)+"/explain", nil)
}

// Stats reads the counters of an instance's containers.
func (c *Client) Stats(ctx context.Context, id skerry.InstanceID) ([]ContainerStats, error) {
	return get[[]ContainerStats](ctx, c, instancePath(id)+"/stats", nil)
}

// InstanceMetrics scrapes the metrics that an instance offers.
func (c *Client) InstanceMetrics(ctx context.Context, id skerry.InstanceID) (out []byte, err error) {
	err = c.do(ctx, http.MethodGet, instancePath(id)+"/metrics", nil, nil, &out)
	return out, err
}

// EventFilter chooses events. Limit 0 means 200.
type EventFilter struct {
	Namespace, App string
	Instance       skerry.InstanceID
	Limit          int
}

// Events lists events, oldest first.
func (c *Client) Events(ctx context.Context, f EventFilter) ([]wire.Event, error) {
	return list[wire.Event](ctx, c, "/v1/events", query("namespace", f.Namespace, "app", f.App, "instance", string(f.Instance), "limit",
		number(f.Limit)))
}

// Clusters lists the clusters; only the root knows them.
func (c *Client) Clusters(ctx context.Context) ([]view.ClusterView, error) {
	return list[view.ClusterView](ctx, c, "/v1/clusters", nil)
}

// Cluster shows a cluster.
func (c *Client) Cluster(ctx context.Context, name string) (view.ClusterView, error) {
	return get[view.ClusterView](ctx, c, "/v1/clusters/"+esc(name), nil)
}

// DeleteCluster forgets a cluster that is not connected.
func (c *Client) DeleteCluster(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/clusters/"+esc(name), nil, nil, nil)
}

// TrustCluster has a cluster believed again, and ends its quarantine.
func (c *Client) TrustCluster(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPut, "/v1/clusters/"+esc(name)+"/trust", nil, nil, nil)
}

// workers is where the workers are: of the server, or of the cluster of ClientOptions.Cluster.
func (c *Client) workers() string {
	if c.opt.Cluster == "" {
		return "/v1/workers"
	}
	return "/v1/clusters/" + esc(c.opt.Cluster) + "/workers"
}

// Grants lists what the cluster lets the users of its root do.
func (c *Client) Grants(ctx context.Context) ([]wire.Granted, error) {
	return list[wire.Granted](ctx, c, "/v1/grants", nil)
}

// SetGrant has the cluster let the users of its root do something, or no longer do it.
func (c *Client) SetGrant(ctx context.Context, g wire.Grant, given bool) error {
	method := http.MethodDelete
	if given {
		method = http.MethodPut
	}
	return c.do(ctx, method, "/v1/grants/"+esc(string(g)), nil, nil, nil)
}

// Workers lists the workers. Only a cluster knows them; a root asks the cluster of ClientOptions.Cluster.
func (c *Client) Workers(ctx context.Context) ([]view.WorkerView, error) {
	if c.workers() != "/v1/workers" { // the root has a cluster asked, and bounds its answer
		return list[view.WorkerView](ctx, c, c.workers(), nil)
	}
	return pages[view.WorkerView](ctx, c, c.workers(), url.Values{})
}

// Worker shows a worker.
func (c *Client) Worker(ctx context.Context, name string) (view.WorkerView, error) {
	return get[view.WorkerView](ctx, c, c.workers()+"/"+esc(name), nil)
}

// WorkerOverlay asks a worker by which ways it reaches the others in the overlay.
func (c *Client) WorkerOverlay(ctx context.Context, name string) (view.OverlayView, error) {
	return get[view.OverlayView](ctx, c, c.workers()+"/"+esc(name)+"/overlay", nil)
}

// DeleteWorker forgets a worker that is not connected.
func (c *Client) DeleteWorker(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/workers/"+esc(name), nil, nil, nil)
}

// CordonCluster keeps new work from a cluster; an empty reason ends that, a drain and a quarantine.
func (c *Client) CordonCluster(ctx context.Context, name, reason string) error {
	return c.do(ctx, http.MethodPut, "/v1/clusters/"+esc(name)+"/hold", nil, map[string]string{"reason": reason}, nil)
}

// DrainCluster has everything of the root's that can leave a cluster.
func (c *Client) DrainCluster(ctx context.Context, name string, r view.ClusterDrainRequest) error {
	return c.do(ctx, http.MethodPut, "/v1/clusters/"+esc(name)+"/drain", nil, r, nil)
}

// LabelCluster changes the labels of a cluster.
func (c *Client) LabelCluster(ctx context.Context, name string, change view.ClusterLabels) error {
	return c.do(ctx, http.MethodPatch, "/v1/clusters/"+esc(name)+"/labels", nil, change, nil)
}

// CordonWorker keeps new work from a worker; an empty reason ends that.
func (c *Client) CordonWorker(ctx context.Context, name, reason string) error {
	return c.do(ctx, http.MethodPut, c.workers()+"/"+esc(name)+"/hold", nil, map[string]string{"reason": reason}, nil)
}

// Unadmitted lists what is there and would be refused, given less, or without effect today.
func (c *Client) Unadmitted(ctx context.Context) ([]view.Unadmitted, error) {
	return list[view.Unadmitted](ctx, c, "/v1/unadmitted", nil)
}

// Rebalance moves what runs at a site to clearly better places, one after the other; with dryRun it only tells what would be moved.
func (c *Client) Rebalance(ctx context.Context, dryRun bool) (view.RebalancePlan, error) {
	var out view.RebalancePlan
	return out, c.do(ctx, http.MethodPost, "/v1/rebalance", nil, map[string]bool{"dryRun": dryRun}, &out)
}

// DrainWorker has everything that can leave a worker.
func (c *Client) DrainWorker(ctx context.Context, name string, r view.DrainRequest) error {
	return c.do(ctx, http.MethodPut, c.workers()+"/"+esc(name)+"/drain", nil, r, nil)
}

// UpgradeWorker has a worker's agent go over to another program.
func (c *Client) UpgradeWorker(ctx context.Context, name string, r view.UpgradeRequest) error {
	return c.do(ctx, http.MethodPut, c.workers()+"/"+esc(name)+"/upgrade", nil, r, nil)
}

// JoinTokens lists the join tokens.
func (c *Client) JoinTokens(ctx context.Context) ([]JoinToken, error) {
	return list[JoinToken](ctx, c, "/v1/tokens", nil)
}

// CreateJoinToken makes a join token.
func (c *Client) CreateJoinToken(ctx context.Context, r JoinTokenRequest) (NewJoinToken, error) {
	return send[NewJoinToken](ctx, c, http.MethodPost, "/v1/tokens", nil, r)
}

// DeleteJoinToken withdraws a join token.
func (c *Client) DeleteJoinToken(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/tokens/"+esc(id), nil, nil, nil)
}

// Members lists the enrolled clusters or workers.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	return list[Member](ctx, c, "/v1/members", nil)
}

// RevokeMember revokes a member's key for good.
func (c *Client) RevokeMember(ctx context.Context, name, reason string) error {
	return c.do(ctx, http.MethodDelete, "/v1/members/"+esc(name), query("reason", reason), nil, nil)
}

// ReleaseMember ends a member's quarantine.
func (c *Client) ReleaseMember(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodPost, "/v1/members/"+esc(name)+"/release", nil, nil, nil)
}

// Images lists the images of the built-in registry.
func (c *Client) Images(ctx context.Context) ([]view.ImageView, error) {
	return pages[view.ImageView](ctx, c, "/v1/images", url.Values{})
}

// Audit lists the newest audit records, oldest first. Limit 0 means 200.
func (c *Client) Audit(ctx context.Context, user, operation string, limit int) ([]auth.AuditRecord, error) {
	return list[auth.AuditRecord](ctx, c, "/v1/audit", query("user", user, "operation", operation, "limit", number(limit)))
}

// VerifyAudit checks that no kept audit record was changed or removed. since is the head of an earlier report, or empty.
func (c *Client) VerifyAudit(ctx context.Context, since string) (auth.AuditReport, error) {
	return get[auth.AuditReport](ctx, c, "/v1/audit/verify", query("since", since))
}

// Metrics reads the server's Prometheus text.
func (c *Client) Metrics(ctx context.Context) (out []byte, err error) {
	err = c.do(ctx, http.MethodGet, "/metrics", nil, nil, &out)
	return out, err
}

// MetricsTargets lists what Prometheus may scrape through the server.
func (c *Client) MetricsTargets(ctx context.Context) ([]TargetGroup, error) {
	return get[[]TargetGroup](ctx, c, "/v1/metrics/targets", nil)
}

// Schema reads the JSON Schema of manifests.
func (c *Client) Schema(ctx context.Context) (out []byte, err error) {
	err = c.send(ctx, http.MethodGet, "/schema/application.json", nil, nil, &out, false)
	return out, err
}

// Ready gives nil, or why the server cannot do its work.
func (c *Client) Ready(ctx context.Context) error {
	return c.send(ctx, http.MethodGet, "/readyz", nil, nil, nil, false)
}
