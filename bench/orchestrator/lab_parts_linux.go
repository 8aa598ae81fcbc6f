package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"skerry.dev/skerry/lab"
)

// settle is how long a federation is left alone before it counts as idle. Connections for images and logs stay for a minute.
const settle, quickSettle = 75 * time.Second, 10 * time.Second

// step is a setting of a part: what is done in each round, in which federation.
type step struct {
	part, setting string
	plan          plan
	do            func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error)
	// holds refuses what this machine cannot hold; nil: nothing.
	holds func() error
}

// steps are what a report has, in order.
func (o *LabOptions) steps() (out []step) {
	add := func(part, setting string, p plan, do func(context.Context, *labRun, *federation) (map[string]float64, error)) *step {
		s := step{part: part, setting: setting, plan: p, do: do}
		if !o.wants(part) {
			return &s
		}
		out = append(out, s)
		return &out[len(out)-1]
	}
	for _, n := range o.Workers {
		add("deploy", fmt.Sprintf("%d workers", n), plan{clusters: 1, workers: n}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.one(ctx, f, "")
		})
		add("deploy", fmt.Sprintf("%d workers, pinned", n), plan{clusters: 1, workers: n}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.one(ctx, f, fmt.Sprintf(`"placement":{"worker":%q},`, workerHost(0, 0)))
		})
	}
	far := plan{clusters: 1, workers: o.Workers[0]}
	for _, d := range o.Delays {
		add("delay", d.String(), far, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.over(ctx, f, d, 0)
		})
	}
	for _, l := range o.Losses {
		add("loss", fmt.Sprintf("%g %%", l), far, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.over(ctx, f, 0, lab.Share(l/100))
		})
	}
	for _, n := range o.Stress {
		stress := add("stress", fmt.Sprintf("%d instances on each of %d", n, o.StressWorkers), plan{clusters: 1, workers: o.StressWorkers}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.stress(ctx, f, n)
		})
		stress.holds = func() error { return thisMachine().holds(n * o.StressWorkers) }
	}
	for _, name := range o.Sizes {
		limits := labSizes()[name]
		sizes := add("sizes", sizeText(name, limits), plan{clusters: 1, workers: 1, limits: limits}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.sized(ctx, f)
		})
		sizes.holds = func() error { return thisMachine().fits(name, limits) }
	}
	for _, n := range o.Workers {
		for _, each := range []int{0, 10} {
			add("messages", fmt.Sprintf("%d workers, %d instances on each", n, each), plan{clusters: 1, workers: n}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
				return m.messages(ctx, f, each)
			})
		}
	}
	for _, silent := range []bool{false, true} {
		setting := "killed"
		if silent {
			setting = "silent"
		}
		add("failover", setting, plan{clusters: 1, workers: max(2, o.Workers[0])}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.failover(ctx, f, silent)
		})
	}
	for _, n := range o.Clusters {
		add("clusters", fmt.Sprintf("%d clusters of 2", n), plan{clusters: n, workers: 2}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
			return m.clusters(ctx, f)
		})
	}
	for _, part := range []string{"crowded", "uncrowded"} {
		for _, known := range []bool{false, true} {
			setting := "without profiles"
			if known {
				setting = "by profile"
			}
			add(part, setting, plan{clusters: 1, workers: 2, cpu: 2000}, func(ctx context.Context, m *labRun, f *federation) (map[string]float64, error) {
				return m.profiled(ctx, f, part == "crowded", known)
			})
		}
	}
	return out
}

// one deploys an instance.
func (m *labRun) one(ctx context.Context, f *federation, extra string) (map[string]float64, error) {
	name := m.fresh()
	seconds, err := f.deploy(ctx, name, extra, 1, m.o.Timeout)
	if err == nil {
		err = f.answers(ctx, name)
	}
	return map[string]float64{"ready": seconds}, errors.Join(err, f.remove(ctx, name))
}

// over deploys an instance while the cables of the workers have a delay, half of it each way, or lose packets each way.
func (m *labRun) over(ctx context.Context, f *federation, delay time.Duration, loss lab.Share) (values map[string]float64, err error) {
	set := func(ctx context.Context, delay time.Duration, loss lab.Share) (err error) {
		half := delay / 2
		for _, h := range f.l.Names(lab.RoleWorker) {
			err = errors.Join(err, f.l.SetLink(ctx, []string{h}, lab.LinkChange{Delay: &half, Loss: &loss}))
		}
		return err
	}
	if err := set(ctx, delay, loss); err != nil {
		return nil, err
	}
	name := m.fresh()
	seconds, err := f.deploy(ctx, name, "", 1, m.o.Timeout)
	if again := set(context.WithoutCancel(ctx), 0, 0); again != nil {
		return nil, errors.Join(err, again)
	}
	return map[string]float64{"ready": seconds}, errors.Join(err, f.remove(ctx, name), f.connected(ctx))
}

// connected waits until every worker is there again.
func (f *federation) connected(ctx context.Context) error {
	for _, c := range f.sites {
		err := until(ctx, "all workers are connected", func() (bool, error) {
			list, err := c.Workers(ctx)
			n := 0
			for _, w := range list {
				if w.Connected && w.Refusing == "" {
					n++
				}
			}
			return n == f.plan.workers, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// messages counts what passes the cables of a worker, the cluster and the root while nothing is to be done, with some instances on each worker.
func (m *labRun) messages(ctx context.Context, f *federation, each int) (values map[string]float64, err error) {
	if each > 0 {
		name := m.fresh()
		defer func() { err = errors.Join(err, f.remove(context.WithoutCancel(ctx), name)) }()
		if _, err := f.deploy(ctx, name, `"placement":{"policy":"spread"},`, each*f.plan.workers, m.o.Timeout); err != nil {
			return nil, err
		}
	}
	if err := wait(ctx, m.settle()); err != nil {
		return nil, err
	}
	values = map[string]float64{}
	return values, m.listened(ctx, f, values, func() error { return m.load(ctx, f, values) })
}

// listened counts messages while do runs: at the first worker its own with its cluster, and with other workers; at the first cluster those with all its
// workers; at the root those with all clusters. Values are for each minute.
func (m *labRun) listened(ctx context.Context, fed *federation, values map[string]float64, do func() error) (err error) {
	roles := map[netip.Addr]lab.Role{}
	for _, h := range fed.l.Topology.Hosts {
		roles[netip.MustParseAddr(h.Address)] = h.Role
	}
	ears := map[string]*listener{}
	defer func() {
		for _, e := range ears {
			_, again := e.end()
			err = errors.Join(err, again)
		}
	}()
	for host, kind := range map[string]string{workerHost(0, 0): "worker", clusterHost(0): "cluster", rootHost: "root"} {
		e, err := listen(fed.l, host, func(peer netip.Addr, port uint16, tcp bool) string {
			switch r := roles[peer]; {
			case kind == "worker" && r == lab.RoleWorker:
				return "peer"
			case kind == "worker" && r == lab.RoleCluster, kind == "cluster" && r == lab.RoleWorker, kind == "root" && r == lab.RoleCluster:
				if tcp && port != linkToRoot && port != linkToSite {
					return "" // images, logs
				}
				return kind
			}
			return ""
		})
		if err != nil {
			return err
		}
		ears[host] = e
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	minutes := time.Since(began).Minutes()
	for host, e := range ears {
		delete(ears, host)
		sums, again := e.end()
		if again != nil {
			err = errors.Join(err, again)
			continue
		}
		for sort, t := range sums {
			values[sort+".messages"] = float64(t.Messages) / minutes
			if sort != "peer" {
				values[sort+".bytes"] = float64(t.Bytes) / minutes
			}
		}
	}
	return err
}

// failover ends a worker with all that it runs, and tells when what it ran is ready elsewhere. A silent one is cut off before, so that nobody is told by
// connections that are closed, as when a machine loses its power.
func (m *labRun) failover(ctx context.Context, fed *federation, silent bool) (values map[string]float64, err error) {
	name := m.fresh()
	if _, err := fed.deploy(ctx, name, "", 1, m.o.Timeout); err != nil {
		return nil, err
	}
	list, err := fed.instances(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].Worker == "" {
		return nil, fmt.Errorf("%d instances in place of one, or nobody knows where", len(list))
	}
	victim := string(list[0].Worker)
	site := clusterHost(0) + "/*"
	began := time.Now()
	if silent {
		if err := fed.l.Partition(ctx, victim, site, false); err != nil {
			return nil, err
		}
	}
	off := make(chan error, 1)
	go func() { off <- fed.l.PowerOff(context.WithoutCancel(ctx), victim) }()
	err = until(ctx, "the replacement is ready", func() (bool, error) {
		list, err := fed.instances(ctx, name)
		for _, i := range list {
			if string(i.Worker) != victim && isReady(&i) {
				return true, nil
			}
		}
		return false, err
	})
	seconds := time.Since(began).Seconds()
	if err = errors.Join(err, <-off); err != nil {
		return nil, err
	}
	if silent {
		if err := fed.l.Heal(ctx, victim, site, false); err != nil {
			return nil, err
		}
	}
	if err := fed.l.Start(ctx, victim); err != nil {
		return nil, err
	}
	bound, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return map[string]float64{"replaced": seconds}, errors.Join(fed.l.Await(bound, victim), fed.connected(ctx), fed.remove(ctx, name))
}

// clusters deploys one instance, then one for each worker, and tells what the root has to do for its clusters at rest.
func (m *labRun) clusters(ctx context.Context, f *federation) (map[string]float64, error) {
	values, err := m.one(ctx, f, "")
	if err != nil {
		return nil, err
	}
	name := m.fresh()
	values["all.ready"], err = f.deploy(ctx, name, `"placement":{"policy":"spread"},`, f.plan.clusters*f.plan.workers, m.o.Timeout)
	if err := errors.Join(err, f.remove(ctx, name)); err != nil {
		return nil, err
	}
	if err := wait(ctx, quickSettle); err != nil {
		return nil, err
	}
	return values, m.listened(ctx, f, values, func() error { return m.load(ctx, f, values) })
}
