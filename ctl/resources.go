package ctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// query is what a list is asked for.
type listQuery struct {
	namespace string // empty: all
	app       string
	now       time.Time
	all       bool // show the namespace
	note      func(text string)
}

// newestMost is how many there are of a list that shows the newest alone.
const newestMost = 200

// cut says that a list of which one more was asked for is not all.
func (q *listQuery) cut(found int, what string) bool {
	if found > newestMost && q.note != nil {
		q.note(fmt.Sprintf("only the newest %d %s are shown", newestMost, what))
	}
	return found > newestMost
}

// item is one thing of a list.
type item struct {
	name   string // as -o name gives it, without the kind
	value  any
	cells  []string
	wide   []string
	labels map[string]string
}

// resource is a kind of thing that can be listed.
type resource struct {
	names      []string // singular, plural, short forms
	namespaced bool
	watch      bool // the server tells of changes
	head, wide []string
	list       func(ctx context.Context, c *api.Client, q listQuery) ([]item, error)
}

func (r *resource) singular() string { return r.names[0] }
func (r *resource) plural() string   { return r.names[1] }

// resources is the table of everything that get knows.
func resources() []*resource {
	return []*resource{
		{names: []string{"app", "apps", "application", "applications"}, namespaced: true, watch: true,
			head: []string{"NAME", "STATUS", "READY", "SERVICES", "GENERATION", "AGE", "REASON"}, wide: []string{"ORG", "AUTHOR", "ORIGIN"},
			list: listApps},
		{names: []string{"service", "services", "svc"}, namespaced: true, watch: true,
			head: []string{"NAME", "MODE", "READY", "UP-TO-DATE", "RESTARTS", "CPU", "MEMORY", "REASON"}, wide: []string{"IMAGE", "DIGEST"},
			list: listServices},
		{names: []string{"instance", "instances", "inst", "i"}, namespaced: true, watch: true,
			head: []string{"NAME", "SERVICE", "STATE", "PHASE", "READY", "RESTARTS", "CLUSTER", "AGE", "REASON"},
			wide: []string{"WORKER", "ADDRESS", "PORTS", "RUNTIME", "CPU", "MEMORY", "DIGEST"}, list: listInstances},
		{names: []string{"orphan", "orphans"}, head: []string{"NAME", "SERVICE", "STATE", "CLUSTER", "WORKER", "AGE", "PROBLEM"},
			wide: []string{"ORG"}, list: listOrphans},
		{names: []string{"ingress", "ingresses", "ing"}, namespaced: true,
			head: []string{"SERVICE", "HOST", "PATH", "PORT", "PROTOCOL", "TLS", "AT"}, wide: []string{"POLICY", "PROBLEMS"}, list: listIngress},
		{names: []string{"cluster", "clusters", "cl"}, head: []string{"NAME", "CONNECTED", "WORKERS", "INSTANCES", "CPU-FREE", "MEMORY-FREE",
			"SINCE"}, wide: []string{"AREAS", "VERSION", "HEARD", "CERTIFICATE", "GRANTS", "HOST-CERTIFICATES"}, list: listClusters},
		{names: []string{"upgrade", "upgrades"}, head: []string{"NAME", "IMAGE", "STATE", "DONE", "FAILED", "AGE", "REASON"},
			wide: []string{"BY", "DIGEST"}, list: listUpgrades},
		{names: []string{"grant", "grants"}, head: []string{"NAME", "BY", "AGE"}, list: listGrants},
		{names: []string{"worker", "workers", "w"}, head: []string{"NAME", "STATUS", "INSTANCES", "CPU-FREE", "MEMORY-FREE", "RUNTIMES", "SINCE"},
			wide: []string{"ADDRESS", "ARCH", "AREA", "KERNEL", "VERSION", "MACHINE", "COORDINATE"}, list: listWorkers},
		{names: []string{"device", "devices", "dev"}, head: []string{"NAME", "CLASS", "WORKER", "TAKEN", "SHARES", "AT", "LABELS"},
			wide: []string{"INSTANCES"}, list: listDevices},
		{names: []string{"event", "events", "ev"}, namespaced: true, watch: true, head: []string{"AGE", "TYPE", "REASON", "OBJECT", "TEXT"},
			wide: []string{"CLUSTER", "WORKER"}, list: listEvents},
		{names: []string{"image", "images", "img"}, head: []string{"NAME", "SIZE", "PLATFORMS", "AGE", "LAST-USED", "USED-BY"},
			wide: []string{"DIGEST", "KEPT-FOR", "COPIES"}, list: listImages},
		{names: []string{"namespace", "namespaces", "ns"}, head: []string{"NAME", "ORG"}, list: listNamespaces},
		{names: []string{"org", "orgs", "organisation", "organisations"},
			head: []string{"NAME", "CPU", "MEMORY", "STORAGE", "INSTANCES", "ADDRESSES"}, wide: []string{"PUSHED", "UPLOADS", "DEFINITIONS"},
			list: listOrgs},
		{names: []string{"certificate", "certificates", "cert"}, head: []string{"NAME", "ORG", "HOSTS", "UNTIL", "AGE"},
			wide: []string{"ISSUER", "FINGERPRINT", "BY"}, list: listCertificates},
		{names: []string{"secret", "secrets"}, namespaced: true, head: []string{"NAME", "VERSION", "FILES", "SIZE", "USED-BY", "AGE"},
			wide: []string{"BY", "VERSIONS"}, list: listSecrets},
		{names: []string{"volume", "volumes", "vol"}, namespaced: true,
			head: []string{"NAME", "STATE", "SIZE", "VOLUMES", "RECLAIM", "CLUSTER", "WORKER", "SINCE", "SNAPSHOT"},
			wide: []string{"ORG", "INSTANCE", "ORIGIN"}, list: listVolumes},
		{names: []string{"snapshot", "snapshots", "snap"}, namespaced: true, head: []string{"NAME", "VOLUME", "STATE", "SIZE", "WORKER", "AGE"},
			wide: []string{"ORG", "HOW", "BY", "EXPORTED", "SHA256"}, list: listSnapshots},
		{names: []string{"user", "users"}, head: []string{"NAME", "GRANTS", "DISABLED", "AGE"}, wide: []string{"BY", "TOTP"}, list: listUsers},
		{names: []string{"token", "tokens"}, head: []string{"ID", "ROLE", "NAME", "STATUS", "EXPIRES", "BY"}, list: listTokens},
		{names: []string{"access-token", "access-tokens"}, head: []string{"ID", "NAME", "USER", "SCOPES", "EXPIRES", "AGE"},
			list: listAccessTokens},
		{names: []string{"member", "members"}, head: []string{"NAME", "ROLE", "STATUS", "MACHINE", "CERTIFICATE", "AGE"}, wide: []string{"KEY"},
			list: listMembers},
		{names: []string{"audit"}, head: []string{"TIME", "USER", "OPERATION", "OBJECT", "RESULT", "ADDRESS"},
			wide: []string{"DETAIL", "TOKEN", "REQUEST"}, list: listAudit},
	}
}

// findResource finds a kind by any of its names.
func findResource(name string) (*resource, error) {
	var known []string
	for _, r := range resources() {
		if slices.Contains(r.names, name) {
			return r, nil
		}
		known = append(known, r.names...)
	}
	hint := spec.Suggest(name, known)
	if here := kindsElsewhere[strings.ToLower(name)]; here != "" {
		hint = here
	}
	return nil, skerry.Errorf(skerry.CodeInvalid, "there is no kind %q", name).WithHint("%s", hint)
}

// showKey gives an application's name, with its namespace if several are shown.
func (q *listQuery) showKey(k skerry.AppKey) string {
	if q.all {
		return k.String()
	}
	return k.Name
}

func listApps(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Apps(ctx, q.namespace)
	var out []item
	for _, v := range list {
		ready, want := 0, 0
		for _, s := range v.Services {
			ready, want = ready+s.Ready, want+s.Want
		}
		status := v.Status
		if m := v.Amended; m != nil && len(m.Steps) > 0 {
			status += ", overridden by " + m.Steps[len(m.Steps)-1].Author + ", " + age(q.now, m.Since) + " ago"
		}
		i := item{name: q.showKey(v.Key), value: v, cells: []string{q.showKey(v.Key), status, fmt.Sprintf("%d/%d", ready, want),
			strconv.Itoa(len(v.Services)),
			strconv.Itoa(int(v.Gen)), age(q.now, v.CreatedAt), short(v.Reason)}, wide: []string{v.Org, v.Author, v.Origin}}
		if v.Manifest != nil {
			i.labels = v.Manifest.Metadata.Labels
		}
		out = append(out, i)
	}
	return out, err
}

func listServices(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Apps(ctx, q.namespace)
	var out []item
	for _, v := range list {
		if q.app != "" && v.Key.Name != q.app {
			continue
		}
		for _, s := range v.Services {
			name := q.showKey(v.Key) + "/" + s.Name
			cpu, mem := qos(s.QoS)
			out = append(out, item{name: name, value: struct {
				App skerry.AppKey `json:"app"`
				view.ServiceView
			}{v.Key, s}, cells: []string{name, string(s.Mode), fmt.Sprintf("%d/%d", s.Ready, s.Want), strconv.Itoa(s.UpToDate),
				strconv.Itoa(s.Restarts), cpu, mem, short(s.Reason)},
				wide: []string{s.Image, shortDigest(s.Digest)}})
		}
	}
	return out, err
}

func qos(q *wire.QoS) (cpu, memory string) {
	if q == nil {
		return "", ""
	}
	return cores(q.CPU), size(q.Memory)
}

// shortDigest gives twelve digits of a digest, which may stand behind a repository.
func shortDigest(s string) string {
	for _, algorithm := range []string{"sha256:", "sha512:"} {
		if i := strings.LastIndex(s, algorithm); i >= 0 {
			s = s[i+len(algorithm):]
			return s[:min(12, len(s))]
		}
	}
	return s
}

func listInstances(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Instances(ctx, api.InstanceFilter{Namespace: q.namespace, App: q.app})
	var out []item
	for _, i := range list {
		out = append(out, instanceItem(&i, q))
	}
	return out, err
}

func instanceItem(i *wire.Instance, q listQuery) item {
	cpu, mem := qos(i.QoS)
	var ports []string
	for _, p := range i.Ports {
		ports = append(ports, showPort(p))
	}
	ready := "no"
	if skerry.HasCondition(i.Conditions, skerry.Ready) {
		ready = "yes"
	}
	if i.Want > 0 {
		ready = fmt.Sprintf("%d/%d", i.Have, i.Want)
	}
	return item{name: string(i.ID), value: *i, cells: []string{string(i.ID), q.showKey(i.Service.App) + "/" + i.Service.Service,
		string(i.State), phaseOf(i), ready,
		strconv.Itoa(i.Restarts), string(i.Cluster), age(q.now, i.CreatedAt), short(wire.Summary(i.Trouble()))},
		wide: []string{string(i.Worker), i.Address, strings.Join(ports, ","), i.Runtime, cpu, mem, shortDigest(i.Digest)}}
}

func showPort(p wire.PortBinding) string {
	s := strconv.Itoa(p.Port) + "/" + p.Protocol
	if p.Address != "" {
		return p.Address + "->" + s
	}
	if p.HostPort != 0 {
		return strconv.Itoa(p.HostPort) + "->" + s
	}
	return s
}

// phaseOf is what the worker does with an instance.
func phaseOf(i *wire.Instance) string {
	if i.Stopping && i.Phase != skerry.PhaseExited {
		return string(skerry.PhaseStopping)
	}
	if skerry.HasCondition(i.Conditions, skerry.CrashLoop) {
		return string(skerry.CrashLoop)
	}
	return string(i.Phase)
}

// maxReason bounds a reason in a list; describe shows all of it.
const maxReason = 100

func short(text string) string {
	if r := []rune(text); len(r) > maxReason {
		return string(r[:maxReason-3]) + "..."
	}
	return text
}

// reasonOf says why an instance is not where it should be, in one line.
func reasonOf(i *wire.Instance) string {
	switch {
	case i.Reason != "":
		return i.Reason
	case len(i.Why) > 0:
		return i.Why[0].Text
	case i.Exit != nil && i.State != skerry.Running:
		return i.Exit.String()
	}
	for _, c := range i.Conditions {
		if c.Status == (c.Type == skerry.Frozen || c.Type == skerry.CrashLoop) && c.Reason != "" && c.Reason != "not ready" {
			return c.Reason
		}
	}
	return ""
}

func listClusters(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Clusters(ctx)
	var out []item
	for _, v := range list {
		workers, free := 0, spec.Resources{}
		for _, k := range v.Report.Classes {
			workers += k.Workers
			var sum [spec.NumResources]int64
			for j, m := range k.Available {
				sum[j] = int64(m.Sum)
			}
			free = free.Add(spec.FromVector(sum))
		}
		out = append(out, item{name: string(v.Name), value: v, labels: v.Labels,
			cells: []string{string(v.Name), clusterStatusText(&v), strconv.Itoa(workers), strconv.Itoa(v.Instances),
				cores(free.CPU), size(free.Memory), age(q.now, v.Since)},
			wide: []string{strings.Join(v.Report.Areas, ","), v.Version, age(q.now, v.Heard), until(q.now, v.Expires),
				grantsText(v.Report.Grants), certificatesText(v.Report.Certificates)}})
	}
	return out, err
}

// clusterStatusText is inTouch, and whether the cluster gets new instances.
func clusterStatusText(v *view.ClusterView) string {
	switch {
	case v.Drain != nil && v.Drain.Done:
		return inTouch(v) + ",Drained"
	case v.Drain != nil:
		return inTouch(v) + ",Draining"
	case v.Trust != nil && v.Trust.Quarantine != "":
		return inTouch(v) + ",Quarantined"
	case v.Cordon != "":
		return inTouch(v) + ",Cordoned"
	}
	return inTouch(v)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// workerStatusText is one word, or two, for how a worker fares.
func workerStatusText(shown *view.WorkerView) string {
	var lines []string
	switch {
	case shown.CutOff:
		lines = append(lines, "CutOff")
	case shown.Lost:
		lines = append(lines, "Lost")
	case !shown.Connected:
		lines = append(lines, "Disconnected")
	default:
		lines = append(lines, "Connected")
	}
	if shown.Frozen != "" {
		lines = append(lines, "Frozen")
	}
	switch {
	case shown.Drain != nil && shown.Drain.Done:
		lines = append(lines, "Drained")
	case shown.Drain != nil:
		lines = append(lines, "Draining")
	case shown.Trust != nil && shown.Trust.Quarantine != "":
		lines = append(lines, "Quarantined")
	case shown.Cordon != "":
		lines = append(lines, "Cordoned")
	case shown.Refusing != "":
		lines = append(lines, "Refusing")
	}
	return strings.Join(lines, ",")
}

func listWorkers(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Workers(ctx)
	var out []item
	for _, v := range list {
		f := v.Facts
		if f == nil {
			f = &wire.WorkerFacts{}
		}
		out = append(out, item{name: string(v.Name), value: v, labels: f.Labels,
			cells: []string{string(v.Name), workerStatusText(&v), strconv.Itoa(v.Instances),
				cores(v.Available.CPU), size(v.Available.Memory), strings.Join(f.PassedRuntimes(), ","), age(q.now, v.Since)},
			wide: []string{f.Address, f.Arch, f.Area, f.Kernel, v.Version, v.Machine, coordinateText(v.Coordinate)}})
	}
	return out, err
}

func listEvents(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Events(ctx, api.EventFilter{Namespace: q.namespace, App: q.app, Limit: newestMost + 1})
	if q.cut(len(list), "events") {
		list = list[len(list)-newestMost:]
	}
	var out []item
	for _, e := range list {
		out = append(out, eventItem(&e, q))
	}
	return out, err
}

func eventItem(e *wire.Event, q listQuery) item {
	object := ""
	switch {
	case e.Instance != "":
		object = "instance/" + string(e.Instance)
	case e.Service != "":
		object = "service/" + q.showKey(e.App) + "/" + e.Service
	case e.App.Name != "":
		object = "app/" + q.showKey(e.App)
	case e.Worker != "":
		object = "worker/" + string(e.Worker)
	case e.Cluster != "":
		object = "cluster/" + string(e.Cluster)
	}
	return item{name: strconv.FormatUint(e.Seq, 10), value: *e, cells: []string{age(q.now, e.At), string(e.Type), e.Reason, object, e.Text},
		wide: []string{string(e.Cluster), string(e.Worker)}}
}

func listImages(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Images(ctx)
	var out []item
	for _, v := range list {
		copies := ""
		if c := v.Copies; c != nil {
			copies = fmt.Sprintf("%d/%d", c.Have, c.Of)
		}
		out = append(out, item{name: v.Name, value: v, cells: []string{v.Name, size(v.Size), strings.Join(v.Platforms, ","),
			age(q.now, v.Added), age(q.now, v.LastUsed), strings.Join(v.UsedBy, ",")},
			wide: []string{shortDigest(v.Digest), strings.Join(v.KeptFor, ","), copies}})
	}
	return out, err
}

func listNamespaces(ctx context.Context, c *api.Client, _ listQuery) ([]item, error) {
	list, err := c.Namespaces(ctx)
	var out []item
	for _, v := range list {
		out = append(out, item{name: v.Name, value: v, cells: []string{v.Name, v.Org}})
	}
	return out, err
}

func listOrgs(ctx context.Context, client *api.Client, _ listQuery) ([]item, error) {
	list, err := client.Orgs(ctx)
	if err != nil {
		return nil, err
	}
	var out []item
	for _, v := range list {
		u, err := client.Usage(ctx, v.Name)
		if err != nil {
			return nil, err
		}
		of := func(used, limit string, bounded bool) string {
			if !bounded {
				return used
			}
			return used + "/" + limit
		}
		q := v.Quota
		out = append(out, item{name: v.Name, value: struct {
			apps.Org
			Usage apps.Usage `json:"usage"`
		}{v, u}, cells: []string{v.Name, of(cores(u.Need.CPU), cores(q.CPU), q.CPU > 0), of(size(u.Need.Memory), size(q.Memory), q.Memory > 0),
			of(size(u.Need.Storage), size(q.Storage), q.Storage > 0), of(strconv.Itoa(u.Instances), strconv.Itoa(q.Instances), q.Instances > 0),
			of(strconv.Itoa(u.ServiceAddresses), strconv.Itoa(q.ServiceAddresses), q.ServiceAddresses > 0)},
			wide: []string{of(size(u.Pushed), size(q.MayPush()), true), strconv.Itoa(u.Uploads),
				of(size(u.Definitions), size(q.MayDefine()), true)}})
	}
	return out, nil
}

func listUsers(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Users(ctx)
	var out []item
	for _, v := range list {
		var grants []string
		for _, g := range v.Grants {
			grants = append(grants, g.String())
		}
		out = append(out, item{name: v.Name, value: v, cells: []string{v.Name, strings.Join(grants, ","), yesNo(v.Disabled),
			age(q.now, v.Created)}, wide: []string{v.By, yesNo(v.TOTP)}})
	}
	return out, err
}

func listTokens(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.JoinTokens(ctx)
	var out []item
	for _, v := range list {
		status := "good"
		switch {
		case v.Used != nil:
			status = "used by " + v.Used.Name
		case v.Expires.Before(q.now):
			status = "expired"
		}
		out = append(out, item{name: v.ID, value: v, cells: []string{v.ID, string(v.Role), v.Name, status, until(q.now, v.Expires), v.By}})
	}
	return out, err
}

// until is the time up to t.
func until(now, t time.Time) string {
	switch {
	case t.IsZero():
		return "never"
	case t.Before(now):
		return span(now.Sub(t)) + " ago"
	}
	return "in " + span(t.Sub(now))
}

func listAccessTokens(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.AccessTokens(ctx, "")
	var out []item
	for _, v := range list {
		var scopes []string
		for _, s := range v.Scopes {
			scopes = append(scopes, string(s))
		}
		if scopes == nil {
			scopes = []string{"all"}
		}
		out = append(out, item{name: v.ID, value: v, cells: []string{v.ID, v.Name, v.User, strings.Join(scopes, ","), until(q.now, v.Expires),
			age(q.now, v.Created)}})
	}
	return out, err
}

func listMembers(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Members(ctx)
	var out []item
	for _, v := range list {
		status := "enrolled"
		if v.Quarantine != nil {
			status = "quarantined"
		}
		out = append(out, item{name: v.Name, value: v, cells: []string{v.Name, string(v.Role), status, v.Machine, until(q.now, v.Expires),
			age(q.now, v.Joined)}, wide: []string{v.Key}})
	}
	return out, err
}

func listAudit(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Audit(ctx, "", "", newestMost+1) // the newest first
	if q.cut(len(list), "audit records") {
		list = list[:newestMost]
	}
	var out []item
	for _, v := range list {
		out = append(out, item{name: strconv.FormatUint(v.Seq, 10), value: v,
			cells: []string{v.At.Local().Format(time.DateTime), v.User, v.Operation, v.Object, v.Result, v.Address},
			wide:  []string{v.Detail, v.Token, v.Request}})
	}
	return out, err
}

// kindNames are the names of kinds for completion.
func kindNames() []string {
	m := map[string]bool{}
	for _, r := range resources() {
		m[r.plural2()] = true
	}
	return slices.Sorted(maps.Keys(m))
}

func (r *resource) plural2() string {
	if len(r.names) > 1 {
		return r.plural()
	}
	return r.singular()
}

// completeObjects completes KIND and then names of that kind.
func (a *app) completeObjects(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return kindNames(), cobra.ShellCompDirectiveNoFileComp
	}
	return a.names(cmd.Context(), args[0]), cobra.ShellCompDirectiveNoFileComp
}

// names lists the names of a kind, for completion: quickly, and silently when that fails.
func (a *app) names(ctx context.Context, kind string) []string {
	r, err := findResource(kind)
	if err != nil {
		return nil
	}
	c, err := a.client()
	if err != nil {
		return nil
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	list, err := r.list(ctx, c, listQuery{namespace: a.namespace(), now: time.Now()})
	if err != nil {
		return nil
	}
	var out []string
	for _, i := range list {
		out = append(out, i.name)
	}
	return out
}

// inTouch says whether a cluster is connected, and if not, whether the root has given it up.
func inTouch(v *view.ClusterView) string {
	if v.Lost {
		return "lost"
	}
	return yesNo(v.Connected)
}
