package ctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func (a *app) describeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "describe KIND NAME", Aliases: []string{"desc"},
		Short: "Show the details of an application, service, instance, volume, cluster, worker or upgrade", Args: cobra.RangeArgs(1, 2),
		ValidArgsFunction: a.completeObjects,
		Example:           "  skerry describe app shop\n  skerry describe instance front-x5b2k",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			kind := args[0]
			name := ""
			if len(args) == 2 {
				name = args[1]
			} else {
				var ok bool
				if kind, name, ok = strings.Cut(kind, "/"); !ok {
					return skerry.Errorf(skerry.CodeInvalid, "the name is missing").WithHint("write `skerry describe %s NAME`", kind)
				}
			}
			res, err := findResource(kind)
			if err != nil {
				return err
			}
			if err := a.workersOnly(res); err != nil {
				return err
			}
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			switch res.singular() {
			case "app":
				keys, err := a.appKeys([]string{name})
				if err != nil {
					return err
				}
				return a.describeApp(ctx, client, out, keys[0], "")
			case "service":
				k, err := a.serviceKey(name)
				if err != nil {
					return err
				}
				return a.describeApp(ctx, client, out, k.App, k.Service)
			case "instance":
				id, err := a.instanceID(ctx, client, name)
				if err != nil {
					return err
				}
				return describeInstance(ctx, client, out, id)
			case "volume":
				return a.describeVolume(ctx, client, out, name)
			case "cluster":
				v, err := client.Cluster(ctx, name)
				if err != nil {
					return err
				}
				describeCluster(out, &v, time.Now())
				return nil
			case "upgrade":
				u, err := client.Upgrade(ctx, name)
				if err != nil {
					return err
				}
				describeUpgrade(out, &u, time.Now())
				return nil
			case "worker":
				v, err := client.Worker(ctx, name)
				if err != nil {
					return err
				}
				return a.describeWorker(ctx, client, out, &v, time.Now())
			}
			return skerry.Errorf(skerry.CodeUnsupported, "%s cannot be described", res.plural2()).
				WithHint("`skerry get %s -o yaml` shows everything", res.singular())
		})}
	a.clusterFlag(cmd)
	return cmd
}

func when(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime) + " (" + age(now, t) + " ago)"
}

func (a *app) describeApp(ctx context.Context, client *api.Client, out io.Writer, key skerry.AppKey, service string) error {
	v, err := client.App(ctx, key)
	if err != nil {
		return err
	}
	if service != "" {
		if i := slices.IndexFunc(v.Services, func(s view.ServiceView) bool { return s.Name == service }); i >= 0 {
			v.Services = v.Services[i : i+1]
		} else {
			return skerry.Errorf(skerry.CodeNotFound, "application %s has no service %q", key, service)
		}
	}
	insts, err := client.Instances(ctx, api.InstanceFilter{Namespace: key.Namespace, App: key.Name, Service: service})
	if err != nil {
		return err
	}
	now := time.Now()
	pairs := newPairs(out)
	pairs.add("Application", v.Key.String())
	pairs.add("Organisation", v.Org)
	pairs.add("Status", v.Status)
	pairs.add("Reason", v.Reason)
	pairs.add("Generation", strconv.Itoa(int(v.Gen)))
	pairs.add("Owner", v.Origin)
	pairs.add("Applied by", v.Author)
	pairs.add("Created", when(now, v.CreatedAt))
	pairs.add("Changed", when(now, v.UpdatedAt))
	if v.Manifest != nil {
		pairs.add("Description", v.Manifest.Metadata.Description)
		pairs.add("Labels", pairsText(v.Manifest.Metadata.Labels, ", "))
	}
	pairs.flush()
	if m := v.Amended; m != nil {
		fmt.Fprintf(out, "\nChanged at this site since %s while the root is away (generation %d there):\n", when(now, m.Since), m.Base)
		for _, s := range m.Steps {
			fmt.Fprintf(out, "  %s  %s, by %s\n", when(now, s.At), s.Text, s.Author)
		}
		fmt.Fprintln(out)
	}
	for _, s := range v.Services {
		describeService(out, &v, &s, insts, now)
	}
	for i := range v.Aliases {
		describeAlias(out, &v, &v.Aliases[i])
	}
	return describeEvents(ctx, client, out, api.EventFilter{Namespace: key.Namespace, App: key.Name, Limit: 200}, service, now)
}

func pairsText(m map[string]string, between string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, between)
}

func describeAlias(out io.Writer, shown *view.AppView, alias *wire.NetworkService) {
	fmt.Fprintf(out, "\nAlias %s:\n", alias.Name)
	pairs := newPairs(out)
	var leads []string
	for _, k := range alias.Leads {
		leads = append(leads, k.Service)
	}
	pairs.add("  Leads to", strings.Join(leads, ", "))
	pairs.add("  Names", fmt.Sprintf("%s; any.POLICY.%s.default.%s.%s", alias.Name, alias.Name, shown.Key.Name, shown.Key.Namespace))
	pairs.add("  Addresses", policiesText(alias))
	pairs.flush()
}

// policiesText lists the addresses of policies.
func policiesText(service *wire.NetworkService) string {
	var at []string
	for _, b := range spec.Balances() {
		if a := service.Address(b); a.IsValid() {
			at = append(at, fmt.Sprintf("%s %s", a, b))
		}
	}
	return strings.Join(at, ", ")
}

func describeService(out io.Writer, shown *view.AppView, service *view.ServiceView, insts []wire.Instance, now time.Time) {
	fmt.Fprintf(out, "\nService %s:\n", service.Name)
	pairs := newPairs(out)
	pairs.add("  Mode", string(service.Mode))
	describeProgram(pairs, shown, service)
	pairs.add("  Ready", fmt.Sprintf("%d of %d, %d up to date", service.Ready, service.Want, service.UpToDate))
	pairs.add("  Scale", scaleText(service.Scale))
	pairs.add("  Restarts", strconv.Itoa(service.Restarts))
	pairs.add("  Update", rolloutText(service, now))
	pairs.add("  Rolled back", refusedText(service.Rollout, now))
	pairs.add("  Uses", usesText(service.QoS))
	if shown.Manifest != nil {
		if svc := shown.Manifest.Spec.Service(service.Name); svc != nil {
			pairs.add("  Description", svc.Description)
			pairs.add("  Requests", resourcesText(svc.Resources))
			if svc.Egress != nil {
				pairs.add("  Egress", svc.Egress.String())
			}
			var ports []string
			for _, q := range svc.Ports {
				text := strconv.Itoa(q.Port) + "/" + q.Protocol
				if q.HostPort > 0 {
					text += " at host port " + strconv.Itoa(q.HostPort)
				}
				ports = append(ports, text)
			}
			pairs.add("  Ports", strings.Join(ports, ", "))
			if m := svc.Machine; m != nil && m.Durability == spec.DurabilityRelaxed {
				pairs.add("  Disk", "relaxed: flushed data is lost if the worker loses power")
			}
		}
	}
	if n := service.Addresses; n != nil {
		pairs.add("  Names", fmt.Sprintf("%s; any.POLICY.%s.default.%s.%s", service.Name, service.Name, shown.Key.Name, shown.Key.Namespace))
		pairs.add("  Addresses", policiesText(n))
		var at []string
		for i, a := range n.Instances[:min(len(n.Instances), 8)] {
			at = append(at, fmt.Sprintf("%s (%d)", a, i))
		}
		if more := len(n.Instances) - len(at); more > 0 {
			at = append(at, fmt.Sprintf("and %d more", more))
		}
		pairs.add("  Instances'", strings.Join(at, ", "))
	}
	for _, g := range service.Ingress {
		pairs.add("  Ingress", ingressText(&g))
	}
	pairs.flush()
	grid := table{head: []string{"  INSTANCE", "STATE", "PHASE", "READY", "RESTARTS", "WHERE", "AGE", "DIGEST", "REASON"}}
	for _, i := range insts {
		if i.Service.Service != service.Name {
			continue
		}
		where := string(i.Cluster)
		if i.Worker != "" {
			where = string(i.Worker)
		}
		grid.add("", []string{"  " + string(i.ID), string(i.State), phaseOf(&i), yesNo(skerry.HasCondition(i.Conditions, skerry.Ready)),
			strconv.Itoa(i.Restarts), where, age(now, i.CreatedAt), shortDigest(i.Digest), wire.Summary(i.Trouble())})
	}
	if len(grid.rows) > 0 {
		grid.print(out, false, true)
	}
	describeRuns(out, service, now)
}

// describeRuns lists the last runs of a job.
func describeRuns(out io.Writer, service *view.ServiceView, now time.Time) {
	if len(service.Runs) == 0 {
		return
	}
	grid := table{head: []string{"  RUN", "STARTED", "ENDED", "SUCCEEDED", "FAILED", "RESULT"}}
	for _, r := range service.Runs {
		ended := ""
		if !r.EndedAt.IsZero() {
			ended = age(now, r.EndedAt) + " ago"
		}
		result := r.Result
		if result == "" {
			result = "running"
		}
		grid.add("", []string{"  " + r.ID, age(now, r.StartedAt) + " ago", ended, strconv.Itoa(r.Succeeded), strconv.Itoa(r.Failed),
			result})
	}
	if service.Pending {
		grid.add("", []string{"  -", "", "", "", "", "waits to begin"})
	}
	grid.print(out, false, true)
}

func usesText(q *wire.QoS) string {
	if q == nil {
		return ""
	}
	s := fmt.Sprintf("cpu %s, memory %s", cores(q.CPU), size(q.Memory))
	if q.Throttled > 0 {
		s += fmt.Sprintf(", throttled %.0f %% of the time", q.Throttled*100)
	}
	if q.OOMKills > 0 {
		s += fmt.Sprintf(", %d times out of memory", q.OOMKills)
	}
	if q.RxBytes+q.TxBytes > 0 {
		s += fmt.Sprintf(", received %s, sent %s", size(skerry.Bytes(q.RxBytes)), size(skerry.Bytes(q.TxBytes)))
	}
	if q.ReadBytes+q.WriteBytes > 0 {
		s += fmt.Sprintf(", read %s, wrote %s", size(skerry.Bytes(q.ReadBytes)), size(skerry.Bytes(q.WriteBytes)))
	}
	return s
}

func resourcesText(r spec.Resources) string {
	var out []string
	add := func(name, v string, set bool) {
		if set {
			out = append(out, name+" "+v)
		}
	}
	add("cpu", cores(r.CPU), r.CPU > 0)
	add("memory", size(r.Memory), r.Memory > 0)
	add("storage", size(r.Storage), r.Storage > 0)
	add("gpus", strconv.Itoa(r.GPUs), r.GPUs > 0)
	add("tpus", strconv.Itoa(r.TPUs), r.TPUs > 0)
	add("in", size(r.BandwidthIn)+"/s", r.BandwidthIn > 0)
	add("out", size(r.BandwidthOut)+"/s", r.BandwidthOut > 0)
	add("exclusive cpus", strconv.Itoa(r.ExclusiveCPUs), r.ExclusiveCPUs > 0)
	add("huge pages of 2Mi", size(r.HugePages.Size2Mi), r.HugePages.Size2Mi > 0)
	add("huge pages of 1Gi", size(r.HugePages.Size1Gi), r.HugePages.Size1Gi > 0)
	add("at most cpu", cores(r.Limits.CPU), r.Limits.CPU > 0)
	add("at most memory", size(r.Limits.Memory), r.Limits.Memory > 0)
	return strings.Join(out, ", ")
}

func describeEvents(ctx context.Context, client *api.Client, out io.Writer, filter api.EventFilter, service string, now time.Time) error {
	list, err := client.Events(ctx, filter)
	if err != nil {
		return err
	}
	if service != "" {
		list = slices.DeleteFunc(list, func(e wire.Event) bool { return e.Service != service && e.Service != "" })
	}
	if len(list) == 0 {
		return nil
	}
	const most = 15
	fmt.Fprintln(out, "\nEvents:")
	t := table{head: []string{"  AGE", "TYPE", "REASON", "OBJECT", "TEXT"}}
	for _, e := range list[max(len(list)-most, 0):] {
		i := eventItem(&e, listQuery{now: now})
		i.cells[0] = "  " + i.cells[0]
		t.add("", i.cells)
	}
	t.print(out, false, true)
	return nil
}

func describeInstance(ctx context.Context, client *api.Client, out io.Writer, id skerry.InstanceID) error {
	why, err := client.Explain(ctx, id)
	if err != nil {
		return err
	}
	inst, now := &why.Instance, time.Now()
	pairs := newPairs(out)
	pairs.add("Instance", string(inst.ID))
	pairs.add("Service", inst.Service.String())
	pairs.add("Organisation", inst.Org)
	pairs.add("State", string(inst.State))
	pairs.add("Phase", phaseOf(inst))
	pairs.add("Reason", inst.Reason)
	pairs.add("Generation", strconv.Itoa(int(inst.Gen)))
	pairs.add("Cluster", string(inst.Cluster))
	pairs.add("Worker", string(inst.Worker))
	pairs.add("Runtime", inst.Runtime)
	pairs.add("Devices", strings.Join(inst.Devices, ", "))
	pairs.add("Monitor", inst.Monitor)
	pairs.add("Image digest", inst.Digest)
	pairs.add("Address", inst.Address)
	for _, b := range inst.Ports {
		pairs.add("Port "+b.Name, showPort(b))
	}
	pairs.add("Restarts", strconv.Itoa(inst.Restarts))
	if inst.Exit != nil {
		pairs.add("Last exit", inst.Exit.String()+", "+when(now, inst.Exit.At))
	}
	if inst.Resources != nil {
		pairs.add("Limits", limitsText(*inst.Resources))
	}
	if inst.Overhead != nil {
		pairs.add("Overhead", fmt.Sprintf("%s, for runtime %s", resourcesText(*inst.Overhead), inst.Runtime))
	}
	if inst.Egress != nil {
		pairs.add("Egress", inst.Egress.String())
	}
	pairs.add("Uses", usesText(inst.QoS))
	pairs.add("Created", when(now, inst.CreatedAt))
	pairs.add("Started", when(now, inst.StartedAt))
	pairs.add("Fence", inst.Fence.String())
	if inst.Want > 0 {
		pairs.add("Copies", fmt.Sprintf("%d of %d", inst.Have, inst.Want))
	}
	pairs.flush()
	if len(inst.Conditions) > 0 {
		fmt.Fprintln(out, "\nConditions:")
		t := table{head: []string{"  CONDITION", "STATUS", "SINCE", "REASON"}}
		for _, c := range inst.Conditions {
			t.add("", []string{"  " + string(c.Type), yesNo(c.Status), age(now, c.Since), c.Reason})
		}
		t.print(out, false, true)
	}
	printReasons(out, "Why it is not placed", inst.Why)
	if len(inst.Timeline) > 0 {
		fmt.Fprintln(out, "\nTimeline:")
		t := table{head: []string{"  AFTER", "STATE", "PHASE", "TEXT"}}
		for _, s := range inst.Timeline {
			t.add("", []string{"  " + fmt.Sprintf("%.3fs", s.At.Sub(inst.CreatedAt).Seconds()), string(s.State), string(s.Phase), s.Text})
		}
		t.print(out, false, true)
	}
	if d := why.Decision; d != nil && d.Chosen != "" {
		fmt.Fprintf(out, "\nThe %s chose %s of %d; `skerry explain %s` shows why.\n", d.Tier, clean(d.Chosen), d.Considered, inst.ID)
	}
	return describeEvents(ctx, client, out, api.EventFilter{Instance: id, Limit: 50}, "", now)
}

// limitsText tells what the main container is held to, or "".
func limitsText(r spec.Resources) string {
	var out []string
	if most := r.MostCPU(); most > 0 {
		out = append(out, "cpu "+most.String())
	}
	if most := r.MostMemory(); most > 0 {
		out = append(out, "memory "+most.String())
	}
	return strings.Join(out, ", ")
}

func describeCluster(out io.Writer, v *view.ClusterView, now time.Time) {
	pairs := newPairs(out)
	pairs.add("Cluster", string(v.Name))
	pairs.add("Connected", yesNo(v.Connected))
	pairs.add("Since", when(now, v.Since))
	pairs.add("Version", v.Version)
	pairs.add("Labels", pairsText(v.Labels, ", "))
	pairs.add("Areas", strings.Join(v.Report.Areas, ", "))
	if l := v.Report.Centroid; l != nil {
		pairs.add("Centre", fmt.Sprintf("%.4f,%.4f, radius %.1f km", l.Lat, l.Lon, v.Report.RadiusKm))
	}
	pairs.add("Instances", strconv.Itoa(v.Instances))
	pairs.add("Last report", when(now, v.ReportAt))
	pairs.add("Last heard", when(now, v.Heard))
	pairs.add("Certificate", until(now, v.Expires))
	pairs.add("Grants", grantsText(v.Report.Grants))
	pairs.add("Certificates of hosts", certificatesText(v.Report.Certificates))
	pairs.add("Cordoned because", v.Cordon)
	pairs.add("Drained", drainText(clusterDrain(v)))
	describeTrust(pairs, v.Trust, now)
	pairs.flush()
	if d := clusterDrain(v); d != nil {
		stays(out, d)
	}
	if len(v.Report.Classes) == 0 {
		return
	}
	fmt.Fprintln(out, "\nAvailable resources, by class of workers (sum, mean and deviation):")
	t := table{head: []string{"  ARCH", "RUNTIMES", "DEVICES", "WORKERS", "CPU", "MEMORY", "STORAGE"}}
	for _, k := range v.Report.Classes {
		cpu := func(f float64) string { return cores(skerry.MilliCPU(f)) }
		mem := func(f float64) string { return size(skerry.Bytes(f)) }
		cell := func(n int, show func(float64) string) string {
			m := k.Available[n]
			return fmt.Sprintf("%s (%s ± %s)", show(m.Sum), show(m.Mean), show(m.StdDev))
		}
		workers := strconv.Itoa(k.Workers)
		if k.Coarse {
			workers += " (coarse)"
		}
		t.add("", []string{"  " + k.Class.Arch, strings.Join(k.Class.Runtimes, ","), strings.Join(k.Class.Devices, ","), workers, cell(0, cpu),
			cell(1, mem), cell(2, mem)})
	}
	t.print(out, false, true)
}

// scaleText tells why there are so many instances, or nothing.
func scaleText(f *view.ScaleView) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("%d, from %d to %d; %s", f.Want, f.Min, f.Max, f.Why)
}

// coordinateText shows a place in the network: vector and height in milliseconds, and how far it may be off.
func coordinateText(c *spec.Coordinate) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("(%.1f %.1f %.1f) + %.1f ms, ±%.0f%%", c.Vec[0], c.Vec[1], c.Vec[2], c.Height, 100*c.Error)
}

// updatesText tells how often a worker reports, and why.
func updatesText(v *view.UpdatesView) string {
	if v == nil {
		return ""
	}
	why := map[string]string{wire.PaceIdle: "nothing changes", wire.PaceChange: "something changes", wire.PaceLimit: "a limit is near",
		wire.PaceLink: "its link is slow or lossy", wire.PaceMetered: "the site's profile is metered",
		wire.PaceFixed: "the interval is fixed"}[v.Why]
	if why == "" {
		why = v.Why
	}
	out := why
	if v.EveryMs > 0 {
		out = fmt.Sprintf("about every %s: %s", (time.Duration(v.EveryMs) * time.Millisecond).Round(100*time.Millisecond), why)
	}
	if v.Near != "" {
		out += fmt.Sprintf("; changes count %d times as much, because of %s", v.Gain, v.Near)
	}
	return out
}

// describeTrust tells what speaks against what a member says.
func describeTrust(p *pairs, v *view.CreditView, now time.Time) {
	if v == nil {
		return
	}
	if v.Quarantine != "" {
		p.add("In quarantine", fmt.Sprintf("%s, until %s if nothing is added, or until `skerry uncordon`", when(now, v.Since), until(now, v.Until)))
	}
	p.add("Believed", fmt.Sprintf("%.0f %% of its score counts for placement", 100*v.Rank))
	for _, m := range v.Marks {
		p.add("Implausible", fmt.Sprintf("%s: %s (%d times, last %s)", m.Kind, m.Text, m.Marks, when(now, m.Last)))
	}
}

func (a *app) describeWorker(ctx context.Context, client *api.Client, out io.Writer, shown *view.WorkerView, now time.Time) error {
	pairs := newPairs(out)
	pairs.add("Worker", string(shown.Name))
	pairs.add("Status", workerStatusText(shown))
	pairs.add("Since", when(now, shown.Since))
	pairs.add("Frozen because", shown.Frozen)
	pairs.add("Cordoned because", shown.Cordon)
	pairs.add("Drained", drainText(shown.Drain))
	pairs.add("Unschedulable", shown.Refusing)
	describeTrust(pairs, shown.Trust, now)
	if shown.Claims != nil {
		pairs.add("Claims", resourcesText(*shown.Claims)+", which is not trusted")
	}
	pairs.add("Machine", shown.Machine)
	pairs.add("Version", shown.Version)
	if shown.Carrier == wire.CarrierMQTT {
		pairs.add("Agent", "external, connected by MQTT; only that connection shows that it is alive, and it carries no logs or terminals")
	}
	pairs.add("Upgrade", agentText(shown))
	if f := shown.Facts; f != nil {
		pairs.add("System", strings.Join(nonEmpty(f.OS, f.Kernel, f.Arch), " "))
		pairs.add("Address", f.Address)
		pairs.add("Area", f.Area)
		if f.Location != nil {
			pairs.add("Location", fmt.Sprintf("%g,%g", f.Location.Lat, f.Location.Lon))
		}
		pairs.add("Labels", pairsText(f.Labels, ", "))
		pairs.add("Taints", strings.Join(f.Taints, ", "))
		pairs.add("Devices", strings.Join(f.Devices, ", "))
		if f.Power != nil {
			pairs.add("Power", fmt.Sprintf("%g W idle, %g W busy", f.Power.Idle, f.Power.Busy))
		}
		pairs.add("Attachable", strings.Join(f.Attachable, ", "))
		pairs.add("Capacity", resourcesText(f.Capacity))
	}
	pairs.add("Reserved", resourcesText(shown.Reserved))
	pairs.add("Available", resourcesText(shown.Available))
	pairs.add("Used", resourcesText(shown.Used))
	pairs.add("Coordinate", coordinateText(shown.Coordinate))
	pairs.add("Last report", when(now, shown.ReportAt))
	pairs.add("Reports", updatesText(shown.Updates))
	pairs.flush()
	if shown.Drain != nil {
		stays(out, shown.Drain)
	}
	if shown.Facts != nil && len(shown.Facts.Runtimes) > 0 {
		fmt.Fprintln(out, "\nRuntimes:")
		t := table{head: []string{"  NAME", "WORKS", "VERSION", "CAUSE", "CURE"}}
		for _, r := range shown.Facts.Runtimes {
			t.add("", []string{"  " + r.Name, yesNo(r.Passed), r.Version, r.Cause, r.Cure})
		}
		t.print(out, false, true)
	}
	if a.cluster != "" {
		return nil // the root does not know which of its instances are on a worker
	}
	list, err := client.Instances(ctx, api.InstanceFilter{})
	if err != nil {
		return err
	}
	t := table{head: []string{"  INSTANCE", "SERVICE", "STATE", "READY", "CPU", "MEMORY", "AGE"}}
	for _, i := range list {
		if i.Worker == shown.Name {
			cpu, mem := qos(i.QoS)
			t.add("", []string{"  " + string(i.ID), i.Service.String(), string(i.State), yesNo(skerry.HasCondition(i.Conditions, skerry.Ready)),
				cpu, mem, age(now, i.CreatedAt)})
		}
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(out, "\nInstances:")
		t.print(out, false, true)
	}
	return nil
}
