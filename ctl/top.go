package ctl

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

func (a *app) topCommand() *cobra.Command {
	var format, by string
	var all, history bool
	cmd := &cobra.Command{Use: "top [instances|apps|workers]", Short: "Show resource usage", Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.FixedCompletions([]string{"instances", "apps", "workers"}, cobra.ShellCompDirectiveNoFileComp),
		Long: "Show resource usage, largest first. Only a cluster knows workers and the usage of single\n" +
			"instances; a root knows sums per service and site, and shows - for an instance that shares one.\n\n" +
			"--history shows the last day of a site and its workers: a bar for each hour, whose height is the share of what the\n" +
			"machine has, and a dot for an hour of which nothing is known.",
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			kind := "instances"
			if len(args) == 1 {
				r, err := findResource(args[0])
				if err != nil {
					return err
				}
				if err := a.workersOnly(r); err != nil {
					return err
				}
				kind = r.plural2()
			} else if a.cluster != "" {
				kind = "workers"
			}
			if by != "cpu" && by != "memory" {
				return skerry.Errorf(skerry.CodeInvalid, "--sort-by %q is not a column", by).WithHint("use cpu or memory")
			}
			if history {
				return a.topHistory(cmd, client, kind, format, args)
			}
			q := listQuery{namespace: a.namespace(), all: all, now: time.Now()}
			if all {
				q.namespace = ""
			}
			switch kind {
			case "instances":
				return topInstances(cmd, client, q, format, by)
			case "apps":
				return topApps(cmd, client, q, format, by)
			case "workers":
				return topWorkers(cmd, client, format, by)
			}
			return skerry.Errorf(skerry.CodeInvalid, "top cannot show %s", kind).WithHint("use instances, apps or workers")
		})}
	outputFlag(cmd, &format)
	cmd.Flags().StringVar(&by, "sort-by", "cpu", "cpu or memory")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "in all namespaces")
	cmd.Flags().BoolVar(&history, "history", false, "the last day of a site and its workers")
	a.clusterFlag(cmd)
	return cmd
}

// used is a line of top.
type used struct {
	Name string    `json:"name"`
	Of   string    `json:"service,omitempty"`
	QoS  *wire.QoS `json:"qos,omitempty"` // nil: not known
}

func sortUsed(list []used, by string) {
	slices.SortStableFunc(list, func(x, y used) int {
		var a, b wire.QoS
		if x.QoS != nil {
			a = *x.QoS
		}
		if y.QoS != nil {
			b = *y.QoS
		}
		if by == "memory" {
			return cmp.Compare(b.Memory, a.Memory)
		}
		return cmp.Compare(b.CPU, a.CPU)
	})
}

func topInstances(cmd *cobra.Command, client *api.Client, query listQuery, format, by string) error {
	list, err := client.Instances(cmd.Context(), api.InstanceFilter{Namespace: query.namespace})
	if err != nil {
		return err
	}
	var out []used
	for _, i := range list {
		if i.QoS != nil || i.State == skerry.Running {
			out = append(out, used{string(i.ID), query.showKey(i.Service.App) + "/" + i.Service.Service, i.QoS})
		}
	}
	sortUsed(out, by)
	t := table{head: []string{"INSTANCE", "SERVICE", "CPU", "MEMORY", "THROTTLED", "OOM", "RECEIVED", "SENT", "READ", "WRITTEN"}}
	for _, u := range out {
		x := u.QoS
		if x == nil {
			t.add("instance/"+u.Name, []string{u.Name, u.Of, "", "", "", "", "", "", "", ""})
			continue
		}
		t.add("instance/"+u.Name, []string{u.Name, u.Of, cores(x.CPU), size(x.Memory), fmt.Sprintf("%.0f%%", x.Throttled*100),
			strconv.FormatInt(x.OOMKills, 10),
			size(skerry.Bytes(x.RxBytes)), size(skerry.Bytes(x.TxBytes)), size(skerry.Bytes(x.ReadBytes)), size(skerry.Bytes(x.WriteBytes))})
	}
	return printList(cmd, format, out, &t)
}

func topApps(cmd *cobra.Command, client *api.Client, query listQuery, format, by string) error {
	list, err := client.Apps(cmd.Context(), query.namespace)
	if err != nil {
		return err
	}
	var out []used
	for _, v := range list {
		var sum *wire.QoS
		for _, s := range v.Services {
			if s.QoS != nil {
				both := *s.QoS
				if sum != nil {
					both = sum.Add(both)
				}
				sum = &both
			}
		}
		out = append(out, used{query.showKey(v.Key), "", sum})
	}
	sortUsed(out, by)
	t := table{head: []string{"APP", "CPU", "MEMORY"}}
	for _, u := range out {
		cpu, memory := qos(u.QoS)
		t.add("app/"+u.Name, []string{u.Name, cpu, memory})
	}
	return printList(cmd, format, out, &t)
}

func topWorkers(cmd *cobra.Command, client *api.Client, format, by string) error {
	list, err := client.Workers(cmd.Context())
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(x, y view.WorkerView) int {
		if by == "memory" {
			return cmp.Compare(y.Used.Memory, x.Used.Memory)
		}
		return cmp.Compare(y.Used.CPU, x.Used.CPU)
	})
	of := func(used, all, text string) string {
		if all == "0" {
			return used
		}
		return used + text + all
	}
	grid := table{head: []string{"WORKER", "CPU", "MEMORY", "STORAGE", "RESERVED-CPU", "RESERVED-MEMORY", "INSTANCES"}}
	for _, w := range list {
		if w.Lost || !w.Connected { // what it used last
			grid.add("worker/"+string(w.Name), []string{string(w.Name), "-", "-", "-", cores(w.Reserved.CPU), size(w.Reserved.Memory),
				strconv.Itoa(w.Instances)})
			continue
		}
		var all spec.Resources
		if w.Facts != nil {
			all = w.Facts.Capacity
		}
		grid.add("worker/"+string(w.Name), []string{string(w.Name), of(cores(w.Used.CPU), cores(all.CPU), "/"),
			of(size(w.Used.Memory), size(all.Memory), "/"),
			usedStorage(w.Used), cores(w.Reserved.CPU), size(w.Reserved.Memory), strconv.Itoa(w.Instances)})
	}
	return printList(cmd, format, list, &grid)
}
