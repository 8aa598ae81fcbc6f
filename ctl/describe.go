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
	return &cobra.Command{Use: "describe KIND NAME", Aliases: []string{"desc"}, Short: "Show the details of an application, service, instance, volume, cluster or worker", Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeObjects,
		Example: "  skerry describe app shop\n  skerry describe instance front-x5b2k",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
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
			r, err := findResource(kind)
			if err != nil {
				return err
			}
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			switch r.singular() {
			case "app":
				keys, err := a.appKeys([]string{name})
				if err != nil {
					return err
				}
				return a.describeApp(ctx, c, out, keys[0], "")
			case "service":
				k, err := a.serviceKey(name)
				if err != nil {
					return err
				}
				return a.describeApp(ctx, c, out, k.App, k.Service)
			case "instance":
				id, err := a.instanceID(ctx, c, name)
				if err != nil {
					return err
				}
				return describeInstance(ctx, c, out, id)
			case "volume":
				return a.describeVolume(ctx, c, out, name)
			case "cluster":
				v, err := c.Cluster(ctx, name)
				if err != nil {
					return err
				}
				describeCluster(out, &v, time.Now())
				return nil
			case "worker":
				v, err := c.Worker(ctx, name)
				if err != nil {
					return err
				}
				return describeWorker(ctx, c, out, &v, time.Now())
			}
			return skerry.Errorf(skerry.CodeUnsupported, "%s cannot be described", r.plural2()).
				WithHint("`skerry get %s -o yaml` shows everything", r.singular())
		})}
}

func when(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime) + " (" + age(now, t) + " ago)"
}

func (a *app) describeApp(ctx context.Context, c *api.Client, out io.Writer, k skerry.AppKey, service string) error {
	v, err := c.App(ctx, k)
	if err != nil {
		return err
	}
	if service != "" {
		if i := slices.IndexFunc(v.Services, func(s view.ServiceView) bool { return s.Name == service }); i >= 0 {
			v.Services = v.Services[i : i+1]
		} else {
			return skerry.Errorf(skerry.CodeNotFound, "application %s has no service %q", k, service)
		}
	}
	insts, err := c.Instances(ctx, api.InstanceFilter{Namespace: k.Namespace, App: k.Name, Service: service})
	if err != nil {
		return err
	}
	now := time.Now()
	p := newPairs(out)
	p.add("Application", v.Key.String())
	p.add("Organisation", v.Org)
	p.add("Status", v.Status)
	p.add("Reason", v.Reason)
	p.add("Generation", strconv.Itoa(int(v.Gen)))
	p.add("Owner", v.Origin)
	p.add("Applied by", v.Author)
	p.add("Created", when(now, v.CreatedAt))
	p.add("Changed", when(now, v.UpdatedAt))
	if v.Manifest != nil {
		p.add("Description", v.Manifest.Metadata.Description)
		p.add("Labels", pairsText(v.Manifest.Metadata.Labels))
	}
	p.flush()
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
	return describeEvents(ctx, c, out, api.EventFilter{Namespace: k.Namespace, App: k.Name, Limit: 200}, service, now)
}

func pairsText(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// ingressText tells what clients come to, where, and what is in the way.
func ingressText(g *view.IngressView) string {
	host := g.Host
	if host == "" {
		host = "*"
	}
	out := fmt.Sprintf("%s:%d%s", host, g.Listen, g.Path)
	if g.TLS != "" && g.TLS != spec.TLSOff {
		out += " with tls " + string(g.TLS)
	}
	if len(g.At) > 0 {
		out += " at " + strings.Join(g.At, ", ")
	}
	if len(g.Problems) > 0 {
		out += "; " + strings.Join(g.Problems, "; ")
	}
	return out
}

func describeService(out io.Writer, v *view.AppView, s *view.ServiceView, insts []wire.Instance, now time.Time) {
	fmt.Fprintf(out, "\nService %s:\n", s.Name)
	p := newPairs(out)
	p.add("  Mode", string(s.Mode))
	p.add("  Image", s.Image)
	p.add("  Digest", s.Digest)
	p.add("  Ready", fmt.Sprintf("%d of %d, %d up to date", s.Ready, s.Want, s.UpToDate))
	p.add("  Scale", scaleText(s.Scale))
	p.add("  Restarts", strconv.Itoa(s.Restarts))
	p.add("  Update", rolloutText(s, now))
	p.add("  Rolled back", refusedText(s.Rollout, now))
	p.add("  Uses", usesText(s.QoS))
	if v.Manifest != nil {
		if svc := v.Manifest.Spec.Service(s.Name); svc != nil {
			p.add("  Description", svc.Description)
			p.add("  Requests", resourcesText(svc.Resources))
			if svc.Egress != nil {
				p.add("  Egress", svc.Egress.String())
			}
			var ports []string
			for _, q := range svc.Ports {
				text := strconv.Itoa(q.Port) + "/" + q.Protocol
				if q.HostPort > 0 {
					text += " at host port " + strconv.Itoa(q.HostPort)
				}
				ports = append(ports, text)
			}
			p.add("  Ports", strings.Join(ports, ", "))
			if m := svc.Machine; m != nil && m.Durability == spec.DurabilityRelaxed {
				p.add("  Disk", "relaxed: flushed data is lost if the worker loses power")
			}
		}
	}
	if n := s.Addresses; n != nil {
		p.add("  Names", fmt.Sprintf("%s; any.POLICY.%s.default.%s.%s", s.Name, s.Name, v.Key.Name, v.Key.Namespace))
		var at []string
		for _, b := range spec.Balances() {
			if a := n.Address(b); a.IsValid() {
				at = append(at, fmt.Sprintf("%s %s", a, b))
			}
		}
		p.add("  Addresses", strings.Join(at, ", "))
		at = nil
		for i, a := range n.Instances[:min(len(n.Instances), 8)] {
			at = append(at, fmt.Sprintf("%s (%d)", a, i))
		}
		if more := len(n.Instances) - len(at); more > 0 {
			at = append(at, fmt.Sprintf("and %d more", more))
		}
		p.add("  Instances'", strings.Join(at, ", "))
	}
	for _, g := range s.Ingress {
		p.add("  Ingress", ingressText(&g))
	}
	p.flush()
	t := table{head: []string{"  INSTANCE", "STATE", "PHASE", "READY", "RESTARTS", "WHERE", "AGE", "DIGEST", "REASON"}}
	for _, i := range insts {
		if i.Service.Service != s.Name {
			continue
		}
		where := string(i.Cluster)
		if i.Worker != "" {
			where = string(i.Worker)
		}
		t.add("", []string{"  " + string(i.ID), string(i.State), phaseOf(&i), yesNo(skerry.HasCondition(i.Conditions, skerry.Ready)), strconv.Itoa(i.Restarts), where, age(now, i.CreatedAt), shortDigest(i.Digest), wire.Summary(i.Trouble())})
	}
	if len(t.rows) > 0 {
		t.print(out, false, true)
	}
	if len(s.Runs) > 0 {
		t := table{head: []string{"  RUN", "STARTED", "ENDED", "SUCCEEDED", "FAILED", "RESULT"}}
		for _, r := range s.Runs {
			ended := ""
			if !r.EndedAt.IsZero() {
				ended = age(now, r.EndedAt) + " ago"
			}
			result := r.Result
			if result == "" {
				result = "running"
			}
			t.add("", []string{"  " + r.ID, age(now, r.StartedAt) + " ago", ended, strconv.Itoa(r.Succeeded), strconv.Itoa(r.Failed), result})
		}
		t.print(out, false, true)
	}
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

func describeEvents(ctx context.Context, c *api.Client, out io.Writer, f api.EventFilter, service string, now time.Time) error {
	list, err := c.Events(ctx, f)
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

func describeInstance(ctx context.Context, c *api.Client, out io.Writer, id skerry.InstanceID) error {
	e, err := c.Explain(ctx, id)
	if err != nil {
		return err
	}
	i, now := &e.Instance, time.Now()
	p := newPairs(out)
	p.add("Instance", string(i.ID))
	p.add("Service", i.Service.String())
	p.add("Organisation", i.Org)
	p.add("State", string(i.State))
	p.add("Phase", phaseOf(i))
	p.add("Reason", i.Reason)
	p.add("Generation", strconv.Itoa(int(i.Gen)))
	p.add("Cluster", string(i.Cluster))
	p.add("Worker", string(i.Worker))
	p.add("Runtime", i.Runtime)
	p.add("Image digest", i.Digest)
	p.add("Address", i.Address)
	for _, b := range i.Ports {
		p.add("Port "+b.Name, showPort(b))
	}
	p.add("Restarts", strconv.Itoa(i.Restarts))
	if i.Exit != nil {
		p.add("Last exit", i.Exit.String()+", "+when(now, i.Exit.At))
	}
	p.add("Limits", limitsText(i.Resources))
	if i.Overhead != (spec.Resources{}) {
		p.add("Overhead", fmt.Sprintf("%s, for runtime %s", resourcesText(i.Overhead), i.Runtime))
	}
	if i.Egress != nil {
		p.add("Egress", i.Egress.String())
	}
	p.add("Uses", usesText(i.QoS))
	p.add("Created", when(now, i.CreatedAt))
	p.add("Started", when(now, i.StartedAt))
	p.add("Fence", i.Fence.String())
	if i.Want > 0 {
		p.add("Copies", fmt.Sprintf("%d of %d", i.Have, i.Want))
	}
	p.flush()
	if len(i.Conditions) > 0 {
		fmt.Fprintln(out, "\nConditions:")
		t := table{head: []string{"  CONDITION", "STATUS", "SINCE", "REASON"}}
		for _, c := range i.Conditions {
			t.add("", []string{"  " + string(c.Type), yesNo(c.Status), age(now, c.Since), c.Reason})
		}
		t.print(out, false, true)
	}
	printReasons(out, "Why it is not placed", i.Why)
	if len(i.Timeline) > 0 {
		fmt.Fprintln(out, "\nTimeline:")
		t := table{head: []string{"  AFTER", "STATE", "PHASE", "TEXT"}}
		for _, s := range i.Timeline {
			t.add("", []string{"  " + fmt.Sprintf("%.3fs", s.At.Sub(i.CreatedAt).Seconds()), string(s.State), string(s.Phase), s.Text})
		}
		t.print(out, false, true)
	}
	if d := e.Decision; d != nil && d.Chosen != "" {
		fmt.Fprintf(out, "\nThe %s chose %s of %d; `skerry explain %s` shows why.\n", d.Tier, clean(d.Chosen), d.Considered, i.ID)
	}
	return describeEvents(ctx, c, out, api.EventFilter{Instance: id, Limit: 50}, "", now)
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
	p := newPairs(out)
	p.add("Cluster", string(v.Name))
	p.add("Connected", yesNo(v.Connected))
	p.add("Since", when(now, v.Since))
	p.add("Version", v.Version)
	p.add("Areas", strings.Join(v.Report.Areas, ", "))
	if l := v.Report.Centroid; l != nil {
		p.add("Centre", fmt.Sprintf("%.4f,%.4f, radius %.1f km", l.Lat, l.Lon, v.Report.RadiusKm))
	}
	p.add("Instances", strconv.Itoa(v.Instances))
	p.add("Last report", when(now, v.ReportAt))
	describeTrust(p, v.Trust, now)
	p.flush()
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
		t.add("", []string{"  " + k.Class.Arch, strings.Join(k.Class.Runtimes, ","), strings.Join(k.Class.Devices, ","), workers, cell(0, cpu), cell(1, mem), cell(2, mem)})
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
		wire.PaceLink: "its link is slow or lossy", wire.PaceMetered: "the site's profile is metered", wire.PaceFixed: "the interval is fixed"}[v.Why]
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

func describeWorker(ctx context.Context, c *api.Client, out io.Writer, v *view.WorkerView, now time.Time) error {
	p := newPairs(out)
	p.add("Worker", string(v.Name))
	p.add("Status", workerStatusText(v))
	p.add("Since", when(now, v.Since))
	p.add("Frozen because", v.Frozen)
	p.add("Cordoned because", v.Cordon)
	p.add("Drained", drainText(v.Drain))
	p.add("Unschedulable", v.Refusing)
	describeTrust(p, v.Trust, now)
	if v.Claims != nil {
		p.add("Claims", resourcesText(*v.Claims)+", which is not trusted")
	}
	p.add("Machine", v.Machine)
	p.add("Version", v.Version)
	if v.Carrier == wire.CarrierMQTT {
		p.add("Agent", "external, connected by MQTT; only that connection shows that it is alive, and it carries no logs or terminals")
	}
	p.add("Upgrade", agentText(v))
	if f := v.Facts; f != nil {
		p.add("System", strings.Join(nonEmpty(f.OS, f.Kernel, f.Arch), " "))
		p.add("Address", f.Address)
		p.add("Area", f.Area)
		if f.Location != nil {
			p.add("Location", fmt.Sprintf("%g,%g", f.Location.Lat, f.Location.Lon))
		}
		p.add("Labels", pairsText(f.Labels))
		p.add("Taints", strings.Join(f.Taints, ", "))
		p.add("Devices", strings.Join(f.Devices, ", "))
		if f.Power != nil {
			p.add("Power", fmt.Sprintf("%g W idle, %g W busy", f.Power.Idle, f.Power.Busy))
		}
		p.add("Attachable", strings.Join(f.Attachable, ", "))
		p.add("Capacity", resourcesText(f.Capacity))
	}
	p.add("Reserved", resourcesText(v.Reserved))
	p.add("Available", resourcesText(v.Available))
	p.add("Used", resourcesText(v.Used))
	p.add("Coordinate", coordinateText(v.Coordinate))
	p.add("Last report", when(now, v.ReportAt))
	p.add("Reports", updatesText(v.Updates))
	p.flush()
	if v.Drain != nil {
		stays(out, v.Drain)
	}
	if v.Facts != nil && len(v.Facts.Runtimes) > 0 {
		fmt.Fprintln(out, "\nRuntimes:")
		t := table{head: []string{"  NAME", "WORKS", "VERSION", "CAUSE", "CURE"}}
		for _, r := range v.Facts.Runtimes {
			t.add("", []string{"  " + r.Name, yesNo(r.Passed), r.Version, r.Cause, r.Cure})
		}
		t.print(out, false, true)
	}
	list, err := c.Instances(ctx, api.InstanceFilter{})
	if err != nil {
		return err
	}
	t := table{head: []string{"  INSTANCE", "SERVICE", "STATE", "READY", "CPU", "MEMORY", "AGE"}}
	for _, i := range list {
		if i.Worker == v.Name {
			cpu, mem := qos(i.QoS)
			t.add("", []string{"  " + string(i.ID), i.Service.String(), string(i.State), yesNo(skerry.HasCondition(i.Conditions, skerry.Ready)), cpu, mem, age(now, i.CreatedAt)})
		}
	}
	if len(t.rows) > 0 {
		fmt.Fprintln(out, "\nInstances:")
		t.print(out, false, true)
	}
	return nil
}
