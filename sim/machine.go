package sim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/cluster/volumes"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// task is a container on a machine.
type task struct {
	id      skerry.InstanceID
	name    string
	attempt int
	running bool
	exit    wire.Exit
	restart uint64 // the last request when it was started, which a driver keeps as a label
	memory  string // what it is about; another container started with the same has it from there
}

// machines plays the machines of workers, as the world's Machine says, and what sites ask about them.
type machines struct{ *World }

// act plays a worker's machine: it carries out actions after the time that the Machine says.
func (m machines) act(n *Node, action any) {
	if m.guard != nil {
		m.guard.acted(n, action)
	}
	life := n.life
	later := func(d time.Duration, fn func()) {
		m.at(m.Now.Add(d), func() {
			if n.Up && n.life == life {
				fn()
			}
		})
	}
	switch a := action.(type) {
	case cluster.Measure:
		m.think(later, func() { m.tell(n, cluster.Measured{ID: a.ID, Round: a.Round, RTT: m.measure(a)}) })
	case cluster.MeasureSites:
		m.at(m.Now.Add(time.Second), func() { heard(m.World, n, a.Peers.List) })
	case cluster.Score:
		if m.Machine.Plugins != nil {
			m.think(later, func() { m.tell(n, cluster.Scored{ID: a.ID, Round: a.Round, Answers: m.Machine.Plugins(a)}) })
		}
	case cluster.AskWitness:
		later(min(50*time.Millisecond, a.Wait), func() {
			by, at := m.Workers[n.Name+"/"+a.Witness], m.Workers[n.Name+"/"+a.Suspect]
			m.tell(n, cluster.Witnessed{Suspect: a.Suspect, Witness: a.Witness, Reached: by.Up && at.Up && !by.deaf() && !at.alone})
		})
	case cluster.Appraise:
		later(10*time.Millisecond, func() { m.tell(n, cluster.Appraised{Name: a.Name, RTT: m.roundTrip(m.Workers[n.Name+"/"+a.Name])}) })
	case cluster.TakeSnapshot:
		end, answers := cluster.EndSnapshot{ID: a.ID, Info: &spec.Snapshot{Size: 100 * skerry.MiB, SHA256: strings.Repeat("0", 64)}}, true
		if m.Machine.Snapshot != nil {
			end.Err, answers = m.Machine.Snapshot(a)
		}
		later(time.Second, func() {
			if end.Info.At = m.Now; answers {
				m.tell(n, end)
			}
		})
	case cluster.ExportSnapshot:
		o, answers := volumes.Object{ID: a.Snapshot.ID, To: a.To, Key: string(a.Snapshot.ID)}, true
		end := cluster.EndExport{Snapshot: a.Snapshot, Object: o, Where: "s3://" + a.To, Gone: a.Old}
		if m.Machine.Export != nil {
			answers = m.Machine.Export(a, &end)
		}
		later(time.Second, func() {
			if answers {
				m.tell(n, end)
			}
		})
	case root.Appraise:
		later(10*time.Millisecond, func() { m.tell(n, root.Appraised{Name: a.Name, RTT: m.roundTrip(m.Clusters[a.Name])}) })
	case cluster.Disconnect:
		later(0, func() {
			child := m.Workers[n.Name+"/"+a.Name]
			if m.net != nil {
				m.net.closeParent(child.line.served, true)
			} else {
				m.disconnect(child)
			}
		})
	case worker.Prepare:
		pull := m.Machine.Prepare
		if m.Machine.Pull != nil {
			pull += m.Machine.Pull(n.Name)
		}
		later(pull, func() {
			p := worker.Prepared{ID: a.A.ID, Fence: a.A.Fence, Runtime: cmp.Or(a.A.Runtime, "oci"), Address: m.address(n, a.A.ID)}
			if a.A.From != nil {
				p.Recipient = fmt.Sprintf("key %d", n.life)
			}
			if p.Address == "" {
				p.Err = "no address is left"
			}
			if m.Machine.PrepareErr != nil {
				p.Err, p.Permanent = m.Machine.PrepareErr(n.Name, &a.A)
			}
			for _, q := range a.A.Spec.Ports {
				b := wire.PortBinding{Name: q.PortName(), Port: q.Port, Protocol: q.Proto(), HostPort: q.HostPort}
				if b.HostPort < 0 {
					b.HostPort = 30000 + int(m.order%10000)
				}
				p.Ports = append(p.Ports, b)
			}
			m.tell(n, p)
		})
	case worker.StartContainer:
		later(m.Machine.Start, func() {
			switch checkpointed := a.A.From != nil && a.Attempt == 1 && a.Name == spec.MainContainer; {
			case n.idle:
			case checkpointed:
				m.checkpointed(n, a)
			default:
				m.useVolumes(n, &a.A)
				m.startTask(n, a)
				if a.Resume {
					m.memory(n, a, n.states[a.A.ID])
				}
			}
		})
	case worker.StopContainer:
		t := n.tasks[key(a.ID, a.Name, a.Attempt)] // and not one that has its name by then, see endings of the worker
		later(m.Machine.Stop, func() {
			if t != nil && t.running {
				m.endTask(n, t, wire.Exit{Code: 143, Signal: "SIGTERM", At: m.clock(n)})
			}
		})
	case worker.UpgradeAgent:
		later(20*time.Second, func() { m.tryProgram(n, a.Order) })
	case worker.RunHook:
		later(m.Machine.Start, func() {
			if t := n.tasks[key(a.ID, a.Name, a.Attempt)]; t != nil && t.running {
				m.tell(n, worker.HookDone{ID: a.ID, Name: a.Name, Attempt: a.Attempt})
			}
		})
	case worker.SetLimits:
		later(m.Machine.Stop, func() {
			r := worker.Resized{SetLimits: a}
			if m.Machine.Limits != nil {
				r.Err, r.InUse = m.Machine.Limits(n.Name, a.ID, &a.Spec)
			}
			if r.Err == "" && m.guard != nil {
				m.guard.resized(n, a.ID, a.Spec.Need())
			}
			m.tell(n, r)
		})
	case worker.Watch:
		t := n.tasks[key(a.ID, a.Name, a.Attempt)]
		if t != nil && !t.running {
			later(0, func() { m.tell(n, worker.Exited{ID: t.id, Name: t.name, Attempt: t.attempt, Exit: t.exit}) })
		}
	case worker.Cleanup:
		later(0, func() {
			for _, h := range a.Handles {
				m.discard(n, h)
			}
			delete(n.addresses, a.ID)
			m.tell(n, worker.Cleaned{ID: a.ID})
		})
	case worker.RemoveVolumes:
		delete(n.volumes, a.Claim)
		later(0, func() { m.tell(n, worker.VolumesRemoved{Claim: a.Claim}) })
	case worker.RemoveSnapshot:
		later(0, func() { m.tell(n, worker.SnapshotRemoved{ID: a.ID}) })
	case worker.Discard:
		m.discard(n, a.Handle)
	case worker.ProbeOn:
		n.probing[a.A.ID]++
		for _, k := range a.Kinds {
			m.probe(n, a, k, n.probing[a.A.ID])
		}
	case worker.AwaitQuiet:
		later(a.Least, func() { m.tell(n, worker.Quiet{ID: a.ID}) })
	case worker.ProbeOff:
		n.probing[a.ID]++
	case worker.OverlayItem:
		if a.Item == nil {
			delete(n.overlay, a.Key)
		} else {
			n.overlay[a.Key] = a.Item
		}
	case worker.Cancel:
		later(0, func() {}) // the Prepare answers by itself
	}
}

// useVolumes notes that an instance has its replica's local volumes, which no other may have at that moment.
func (m machines) useVolumes(n *Node, a *spec.Assignment) {
	if !a.Spec.KeepsData() {
		return
	}
	claim := spec.VolumeClaim{Service: a.Service, Ordinal: a.Ordinal}
	for _, t := range n.tasks {
		if before := n.volumes[claim]; t.running && t.name == spec.MainContainer && t.id != a.ID && slices.Contains(before, t.id) {
			m.Faults = append(m.Faults, fmt.Sprintf("%s and %s have the local volumes of %s at once", t.id, a.ID, claim.Key()))
		}
	}
	if n.volumes == nil {
		n.volumes = map[spec.VolumeClaim][]skerry.InstanceID{}
	}
	n.volumes[claim] = append(n.volumes[claim], a.ID)
}

// roundTrip is what a ping on a node's connection takes, or 0 where none comes back.
func (m machines) roundTrip(n *Node) time.Duration {
	if n == nil || !n.Up {
		return 0
	}
	if n.line == nil {
		return 2 * (m.Latency + n.extra)
	}
	if n.deaf() {
		return 0
	}
	d := 2 * (m.Latency + n.line.delay + n.line.jitter)
	if n.line.loss > 0 {
		d += time.Duration(float64(retransmission) * min(1, 5*n.line.loss)) // of a fifth of all segments one is hardly ever spared
	}
	return d
}

// address gives an instance of a worker the lowest free one of the worker's blocks, if it takes part in the overlay.
func (m machines) address(n *Node, id skerry.InstanceID) string {
	node, ok := n.overlay[wire.NodeKey].(*wire.OverlayNode)
	if !ok || len(node.Blocks) == 0 {
		return "172.31.0.2"
	}
	if a := n.addresses[id]; a != "" {
		return a
	}
	taken := map[string]bool{}
	for _, a := range n.addresses {
		taken[a] = true
	}
	for _, b := range node.Blocks {
		for a := b.Addr(); b.Contains(a); a = a.Next() {
			if s := a.String(); !taken[s] {
				n.addresses[id] = s
				return s
			}
		}
	}
	return ""
}

// think answers a question after a while, if at all.
func (m machines) think(later func(time.Duration, func()), answer func()) {
	d, ok := 10*time.Millisecond, true
	if m.Machine.Think != nil {
		d, ok = m.Machine.Think()
	}
	if ok {
		later(d, answer)
	}
}

// measure answers for the workers of a site as the test says.
func (m machines) measure(q cluster.Measure) []map[string]float64 {
	out := make([]map[string]float64, len(q.Targets))
	for i, t := range q.Targets {
		out[i] = map[string]float64{}
		for _, name := range q.Workers {
			if m.Machine.RTT != nil {
				if ms := m.Machine.RTT(name, t); ms > 0 {
					out[i][name] = ms
				}
			}
		}
	}
	return out
}

// probe tries again and again until the probes of the instance are replaced or end.
func (m machines) probe(n *Node, a worker.ProbeOn, kind worker.ProbeKind, round int) {
	p := a.A.Spec.Probes.Readiness
	switch kind {
	case worker.Startup:
		p = a.A.Spec.Probes.Startup
	case worker.Liveness:
		p = a.A.Spec.Probes.Liveness
	}
	life := n.life
	var try func()
	try = func() {
		if !n.Up || n.life != life || n.probing[a.A.ID] != round {
			return
		}
		ok := m.Machine.Probe == nil || m.Machine.Probe(&a.A, kind, a.Attempt)
		m.tell(n, worker.Probed{ID: a.A.ID, Attempt: a.Attempt, Kind: kind, OK: ok, Text: "as the test wants"})
		m.at(m.Now.Add(time.Duration(p.Interval)), try)
	}
	m.at(m.Now.Add(time.Duration(p.InitialDelay)+time.Millisecond), try)
}

func (m machines) discard(n *Node, handle json.RawMessage) {
	var k string
	if json.Unmarshal(handle, &k) == nil {
		if t := n.tasks[k]; t != nil && t.running && m.guard != nil {
			t.running = false
			m.guard.ended(n, t.id)
		}
		delete(n.tasks, k)
	}
}

func (m machines) startTask(n *Node, a worker.StartContainer) {
	k := key(a.A.ID, a.Name, a.Attempt)
	if t := n.tasks[k]; t != nil {
		m.fault("%s: %s was started twice", n.Name, k)
		return
	}
	t := &task{id: a.A.ID, name: a.Name, attempt: a.Attempt, running: true, restart: a.A.Restart, memory: n.Name + " " + k}
	n.tasks[k] = t
	if m.guard != nil {
		m.guard.ran(n, &a.A, a.Name)
	}
	if m.Machine.Started != nil {
		m.Machine.Started(&a.A, a.Name, a.Attempt)
	}
	handle, _ := json.Marshal(k)
	isInit := false
	for _, s := range a.A.Spec.Init {
		isInit = isInit || s.Name == a.Name
	}
	d, exit := time.Duration(-1), wire.Exit{}
	switch {
	case m.Machine.Exit != nil:
		d, exit = m.Machine.Exit(&a.A, a.Name, a.Attempt)
	case isInit:
		d = time.Millisecond
	}
	m.tell(n, worker.Started{ID: a.A.ID, Name: a.Name, Attempt: a.Attempt, At: m.clock(n), Handle: handle})
	if d >= 0 {
		m.at(m.Now.Add(d), func() {
			if t.running && n.tasks[k] == t {
				exit.At = m.clock(n)
				m.endTask(n, t, exit)
			}
		})
	}
}

// endTask ends a task; an agent that is not running learns of it when it comes back.
func (m machines) endTask(n *Node, t *task, exit wire.Exit) {
	t.running, t.exit = false, exit
	if m.guard != nil {
		m.guard.ended(n, t.id)
	}
	if n.Up {
		m.tell(n, worker.Exited{ID: t.id, Name: t.name, Attempt: t.attempt, Exit: exit})
	}
}

// Tasks counts what runs on a worker's machine.
func (n *Node) Tasks() int {
	count := 0
	for _, t := range n.tasks {
		if t.running {
			count++
		}
	}
	return count
}

func key(id skerry.InstanceID, name string, attempt int) string {
	return fmt.Sprintf("%s.%s.%d", id, name, attempt)
}

// tryProgram ends the trial of a worker's new program. One that passes connects anew.
func (m machines) tryProgram(n *Node, order wire.AgentOrder) {
	if m.Machine.Upgrade == nil || n.facts.Agent != nil && n.facts.Agent.Order >= order.Seq {
		return
	}
	why, ends := m.Machine.Upgrade(n.Name, order.Image)
	if !ends {
		return
	}
	facts := *n.facts
	facts.Agent = &wire.AgentFacts{Order: order.Seq, Stage: wire.AgentPassed, From: n.version, To: order.Image, Why: why}
	if why != "" {
		facts.Agent.Stage = wire.AgentFailed
	}
	n.facts = &facts
	m.tell(n, worker.Facts{Facts: facts})
	if why == "" && m.net == nil {
		n.version = order.Image
		m.disconnect(n)
		m.Connect(n)
	}
}
