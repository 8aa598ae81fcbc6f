//go:build linux

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/hostnet"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// Host ports that the worker chooses by itself.
const (
	firstAutoPort = 30000
	lastAutoPort  = 32767
	// mostAutoPorts is how many of them the instances of one organisation have that is not privileged: the others' need some, too.
	mostAutoPorts = (lastAutoPort - firstAutoPort + 1) / 2
)

// attachments keeps the whole wanted configuration of the network, because the network is changed only by Set. Changes
// that arrive while one Set is under way share the next.
type attachments struct {
	network    Network
	overlayNet *overlayNet // nil: no overlay

	setting sync.Mutex // held across Set; taken before mu
	applied uint64     // the change up to which Set has been called, under setting
	lastErr error      // of that Set, under setting

	mu        sync.Mutex
	changes   uint64
	wants     map[skerry.InstanceID]wanted
	ingresses map[skerry.InstanceID]skerry.AppKey // attachments of the ingress, which are no instances
	taken     map[int]bool                        // TCP ports of this host that the ingress listens on
	have      map[skerry.InstanceID]wire.Attachment
	counted   map[string]hostnet.Stats // as it was last read
}

func newAttachments(n Network) *attachments {
	return &attachments{network: n, wants: map[skerry.InstanceID]wanted{}, have: map[skerry.InstanceID]wire.Attachment{}}
}

// wanted is what an instance has of the network: its ports, and its bandwidth in bytes per second (0: no limit).
type wanted struct {
	ports   []wire.PortBinding
	in, out skerry.Bytes
	service skerry.ServiceKey
	ordinal int
	egress  *spec.Egress
	inside  []hostnet.ServicePort // ports that are translated in its network
	at      map[string]netip.Addr // addresses of the host at which alone ports are published, by the ports' names
	org     string
}

func wantedBy(a *spec.Assignment, ports []wire.PortBinding) wanted {
	need := a.Spec.Need()
	var inside []hostnet.ServicePort
	for _, port := range spec.ServicePortsOf(&a.Spec) {
		inside = append(inside, hostnet.ServicePort{From: uint16(port.ServicePort), To: uint16(port.Port), Proto: hostnet.Proto(port.Proto())})
	}
	at := map[string]netip.Addr{}
	for _, port := range a.Spec.Ports {
		if addr, err := netip.ParseAddr(port.HostAddress); err == nil {
			at[port.PortName()] = addr
		}
	}
	return wanted{ports, need.BandwidthIn, need.BandwidthOut, a.Service, a.Ordinal, core.EgressOf(a), inside, at, a.Org}
}

// want takes up an instance of an earlier life, before restore.
func (n *attachments) want(a *spec.Assignment, ports []wire.PortBinding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wants[a.ID] = wantedBy(a, ports)
}

// keep leaves the network of an instance as it is whose record was lost, until the cluster has named it or it ends. It
// may send nothing to the outside meanwhile: its egress policy is not known.
func (n *attachments) keep(id skerry.InstanceID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wants[id] = wanted{egress: &spec.Egress{}}
}

// restore brings the machine in line with what is wanted, and takes away what is not.
func (n *attachments) restore(ctx context.Context) error {
	n.mu.Lock()
	n.changes++
	mine := n.changes
	n.mu.Unlock()
	return n.apply(ctx, mine)
}

// wanted reports whether an instance is to be in the network.
func (n *attachments) wanted(id skerry.InstanceID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, is := n.wants[id]
	return is
}

// add joins an instance to the network and gives its ports. keep are the ports it had before.
func (n *attachments) add(ctx context.Context, assigned *spec.Assignment, keep []wire.PortBinding) ([]wire.PortBinding, wire.Attachment,
	error) {
	if n.network == nil && core.EgressOf(assigned) != nil {
		return nil, wire.Attachment{}, &runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: runtimeOf(assigned),
			Reason: "its egress policy holds in networks of the worker's alone, and this worker gives none (--no-network); leave egress out, or choose another worker"}
	}
	if n.network == nil && len(spec.ServicePortsOf(&assigned.Spec)) > 0 {
		return nil, wire.Attachment{}, &runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: runtimeOf(assigned),
			Reason: "a servicePort is translated in a network of the instance's own, and this worker gives none (--no-network); " +
				"leave servicePort out, or choose another worker"}
	}
	if at := spec.HostAddressLack(&assigned.Spec); n.network == nil && at != "" {
		return nil, wire.Attachment{}, &runtime.Unsupported{Ability: runtime.AbilityNetNS, Driver: runtimeOf(assigned),
			Reason: at + " is published by a network of the instance's own, and this worker gives none (--no-network); " +
				"leave it out, or choose another worker"}
	}
	n.mu.Lock()
	ports, err := n.bindLocked(assigned, keep)
	n.changes++
	mine := n.changes
	n.mu.Unlock()
	if err != nil || n.network == nil {
		return ports, wire.Attachment{}, err
	}
	err = n.apply(ctx, mine)
	n.mu.Lock()
	defer n.mu.Unlock()
	att, ok := n.have[assigned.ID]
	if !ok {
		if err == nil {
			err = fmt.Errorf("instance %s got no attachment", assigned.ID)
		}
		return nil, wire.Attachment{}, err
	}
	return ports, att, nil // an error is another instance's
}

// bindLocked chooses the host ports of an instance.
func (n *attachments) bindLocked(assigned *spec.Assignment, keep []wire.PortBinding) ([]wire.PortBinding, error) {
	ports := []wire.PortBinding{}
	if err := n.shareLocked(assigned, keep); err != nil {
		return nil, err
	}
	for _, q := range assigned.Spec.Ports {
		b := wire.PortBinding{Name: q.PortName(), Port: q.Port, HostPort: q.HostPort, Protocol: q.Proto()}
		if b.HostPort > 0 && n.taken[b.HostPort] && b.Protocol != "udp" {
			return nil, fmt.Errorf("host port %d is one that the worker's ingress listens on; use another host port, or another port for the ingress", b.HostPort)
		}
		if b.HostPort < 0 {
			b.HostPort = 0
			for _, k := range keep {
				if k.Name == b.Name && k.Port == b.Port {
					b.HostPort = k.HostPort
				}
			}
			if b.HostPort == 0 {
				var err error
				if b.HostPort, err = n.freePortLocked(b.Protocol); err != nil {
					return nil, err
				}
			}
		}
		ports = append(ports, b)
		n.wants[assigned.ID] = wantedBy(assigned, ports) // so that the next free port is another one
	}
	n.wants[assigned.ID] = wantedBy(assigned, ports)
	return ports, nil
}

// shareLocked refuses an instance with which its organisation would have more of the ports that the worker chooses than it may. One that
// had them before there was such a limit has them again.
func (n *attachments) shareLocked(assigned *spec.Assignment, keep []wire.PortBinding) error {
	had := map[int]bool{}
	for _, k := range keep {
		had[k.Port] = true
	}
	asked := 0
	for _, q := range assigned.Spec.Ports {
		if q.HostPort < 0 && !had[q.Port] {
			asked++
		}
	}
	if asked == 0 || !bounded(assigned) {
		return nil
	}
	has := 0
	for id, w := range n.wants {
		if w.org != assigned.Org || id == assigned.ID {
			continue
		}
		for _, p := range w.ports {
			if p.HostPort >= firstAutoPort && p.HostPort <= lastAutoPort {
				has++
			}
		}
	}
	if has+asked > mostAutoPorts {
		return fmt.Errorf("organisation %s has %d of the %d host ports that this worker gives one organisation, and the instance asks for %d",
			assigned.Org, has, mostAutoPorts, asked)
	}
	return nil
}

func (n *attachments) freePortLocked(proto string) (int, error) {
	used := map[string]bool{}
	for _, w := range n.wants {
		for _, p := range w.ports {
			used[fmt.Sprintf("%s/%d", p.Protocol, p.HostPort)] = true
		}
	}
	for port := firstAutoPort; port <= lastAutoPort; port++ {
		if used[fmt.Sprintf("%s/%d", proto, port)] || !free(proto, port) {
			continue
		}
		return port, nil
	}
	return 0, fmt.Errorf("no host port from %d to %d is free", firstAutoPort, lastAutoPort)
}

// free reports whether no program of the host listens on a port.
func free(proto string, port int) bool {
	addr := fmt.Sprintf(":%d", port)
	if strings.HasPrefix(proto, "udp") {
		c, err := net.ListenPacket("udp", addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	l, err := net.Listen("tcp", addr)
	if err == nil {
		l.Close()
	}
	return err == nil
}

// apply brings the machine in line with what is wanted, unless a Set since change mine has done so.
func (n *attachments) apply(ctx context.Context, mine uint64) error {
	if n.network == nil {
		return nil
	}
	n.setting.Lock()
	defer n.setting.Unlock()
	if n.applied >= mine {
		return n.lastErr
	}
	n.mu.Lock()
	upTo := n.changes // what comes later may be done, too
	n.mu.Unlock()
	var c hostnet.Config
	if n.overlayNet != nil {
		c.Overlay = n.overlayNet.addresses()
	}
	n.mu.Lock()
	if c.Overlay != nil {
		for id := range n.ingresses {
			c.Attachments = append(c.Attachments, hostnet.Want{ID: string(id)})
		}
	}
	for id, want := range n.wants {
		w := hostnet.Want{ID: string(id), In: want.in, Out: want.out, Egress: want.egress, ServicePorts: want.inside}
		for _, p := range want.ports {
			if p.HostPort > 0 {
				w.HostPorts = append(w.HostPorts, hostnet.HostPort{HostIP: want.at[p.Name], HostPort: uint16(p.HostPort),
					Port: uint16(p.Port), Proto: hostnet.Proto(p.Protocol)})
			}
		}
		c.Attachments = append(c.Attachments, w)
	}
	n.mu.Unlock()
	slices.SortFunc(c.Attachments, func(a, b hostnet.Want) int { return strings.Compare(a.ID, b.ID) })
	// One caller's end must not leave the others without a network.
	have, err := n.network.Set(context.WithoutCancel(ctx), c)
	insts := map[skerry.InstanceID]joined{}
	n.mu.Lock()
	clear(n.have)
	for id, a := range have {
		id := skerry.InstanceID(id)
		n.have[id] = a
		if app, is := n.ingresses[id]; is {
			insts[id] = joined{app: app, at: a}
			continue
		}
		w := n.wants[id]
		if w.service == (skerry.ServiceKey{}) {
			continue // kept; whose it is is not known
		}
		insts[id] = joined{w.service.App, w.service, w.ordinal, a, w.egress != nil && len(w.egress.Allow) == 0}
	}
	n.mu.Unlock()
	if n.overlayNet != nil {
		if _, is := errors.AsType[*hostnet.Overlap](err); is {
			go n.overlayNet.facts() // of what networks the host is in now
		}
		err = errors.Join(err, n.overlayNet.attached(context.WithoutCancel(ctx), insts))
	}
	n.applied, n.lastErr = upTo, err
	return err
}

// setEgress holds an instance that is there to another policy.
func (n *attachments) setEgress(ctx context.Context, id skerry.InstanceID, e *spec.Egress) error {
	n.mu.Lock()
	w, ok := n.wants[id]
	if w.egress = e; ok {
		n.wants[id] = w
	}
	n.changes++
	mine := n.changes
	n.mu.Unlock()
	if !ok {
		return nil // it gets its network later, or none any more
	}
	return n.apply(ctx, mine)
}

// remove takes an instance off the network.
func (n *attachments) remove(ctx context.Context, id skerry.InstanceID) error {
	n.mu.Lock()
	_, ok := n.wants[id]
	delete(n.wants, id)
	n.changes++
	mine := n.changes
	n.mu.Unlock()
	if !ok {
		return nil
	}
	return n.apply(ctx, mine)
}

// setIngresses says in which networks the ingress is to be, and joins it to those where it is not.
func (n *attachments) setIngresses(ctx context.Context, ingresses map[skerry.InstanceID]skerry.AppKey) error {
	n.mu.Lock()
	same := maps.Equal(ingresses, n.ingresses)
	for id := range ingresses {
		at, ok := n.have[id]
		same = same && ok && len(at.Addresses) > 0 && at.Addresses[0].Bits() == 32
	}
	if same {
		n.mu.Unlock()
		return nil
	}
	n.ingresses = ingresses
	n.changes++
	mine := n.changes
	n.mu.Unlock()
	return n.apply(ctx, mine)
}

// ingressesHave gives the attachments of the ingress.
func (n *attachments) ingressesHave() map[skerry.InstanceID]wire.Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[skerry.InstanceID]wire.Attachment{}
	for id := range n.ingresses {
		if a, ok := n.have[id]; ok {
			out[id] = a
		}
	}
	return out
}

// namespace gives the network namespace of an instance, or "" where it has none of its own.
func (n *attachments) namespace(id skerry.InstanceID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.have[id].NetNS
}

// hostPorts gives the TCP ports of this host that lead to instances.
func (n *attachments) hostPorts() map[int]skerry.InstanceID {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := map[int]skerry.InstanceID{}
	for id, w := range n.wants {
		for _, p := range w.ports {
			if p.HostPort > 0 && p.Protocol != "udp" {
				out[p.HostPort] = id
			}
		}
	}
	return out
}

// reserve keeps host ports that the ingress listens on from instances.
func (n *attachments) reserve(ports []int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.taken = map[int]bool{}
	for _, p := range ports {
		n.taken[p] = true
	}
}

// get gives an instance's attachment, or nil.
func (n *attachments) get(id skerry.InstanceID) *wire.Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.have[id]
	if !ok {
		return nil
	}
	return &a
}

// stats gives the counters of those that are known. Where they cannot be read they are those of the last time: none would look as if all
// had begun anew.
func (n *attachments) stats() map[string]hostnet.Stats {
	if n.network == nil {
		return nil
	}
	counted, err := n.network.Stats()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.counted = counted
	}
	return n.counted
}

// tellRefused logs the instances that have as many connections as they may, so that others were refused: their requests hang, and
// nothing else says why.
func (n *attachments) tellRefused(log *slog.Logger) {
	if n.network == nil {
		return
	}
	refused, err := n.network.Refused()
	if err != nil {
		log.Debug("look for refused connections", "err", err)
	}
	for _, id := range refused {
		log.Warn("new connections of an instance are dropped: it has as many as one instance may have", "instance", id)
	}
}
