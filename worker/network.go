//go:build linux

package worker

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"skerry.dev/skerry"
	"skerry.dev/skerry/overlay/hostnet"
)

// Host ports that the worker chooses by itself.
const (
	firstAutoPort = 30000
	lastAutoPort  = 32767
)

// attachments keeps the whole wanted configuration of the network, because the network is changed only by Set.
type attachments struct {
	network Network

	mu    sync.Mutex
	wants map[skerry.InstanceID][]skerry.PortBinding
	have  map[skerry.InstanceID]skerry.Attachment
}

func newAttachments(n Network) *attachments {
	return &attachments{network: n, wants: map[skerry.InstanceID][]skerry.PortBinding{}, have: map[skerry.InstanceID]skerry.Attachment{}}
}

// want takes up an instance of an earlier life, before restore.
func (n *attachments) want(id skerry.InstanceID, ports []skerry.PortBinding) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wants[id] = ports
}

// restore brings the machine in line with what is wanted, and takes away what is not.
func (n *attachments) restore(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.setLocked(ctx)
}

// add joins an instance to the network and gives its ports. keep are the ports it had before.
func (n *attachments) add(ctx context.Context, a *skerry.Assignment, keep []skerry.PortBinding) ([]skerry.PortBinding, skerry.Attachment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var ports []skerry.PortBinding
	for _, q := range a.Spec.Ports {
		b := skerry.PortBinding{Name: q.PortName(), Port: q.Port, HostPort: q.HostPort, Protocol: q.Proto()}
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
					return nil, skerry.Attachment{}, err
				}
			}
		}
		ports = append(ports, b)
		n.wants[a.ID] = ports // so that the next free port is another one
	}
	n.wants[a.ID] = ports
	if n.network == nil {
		return ports, skerry.Attachment{}, nil
	}
	if err := n.setLocked(ctx); err != nil {
		if _, ok := n.have[a.ID]; !ok {
			return nil, skerry.Attachment{}, err
		}
	}
	return ports, n.have[a.ID], nil
}

func (n *attachments) freePortLocked(proto string) (int, error) {
	used := map[string]bool{}
	for _, ports := range n.wants {
		for _, p := range ports {
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

func (n *attachments) setLocked(ctx context.Context) error {
	if n.network == nil {
		return nil
	}
	var c hostnet.Config
	for id, ports := range n.wants {
		w := hostnet.Want{ID: string(id)}
		for _, p := range ports {
			if p.HostPort > 0 {
				w.HostPorts = append(w.HostPorts, hostnet.HostPort{HostPort: uint16(p.HostPort), Port: uint16(p.Port), Proto: hostnet.Proto(p.Protocol)})
			}
		}
		c.Attachments = append(c.Attachments, w)
	}
	slices.SortFunc(c.Attachments, func(a, b hostnet.Want) int { return strings.Compare(a.ID, b.ID) })
	have, err := n.network.Set(ctx, c)
	clear(n.have)
	for id, a := range have {
		n.have[skerry.InstanceID(id)] = a
	}
	return err
}

// remove takes an instance off the network.
func (n *attachments) remove(ctx context.Context, id skerry.InstanceID) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.wants[id]; !ok {
		return nil
	}
	delete(n.wants, id)
	return n.setLocked(ctx)
}

// get gives an instance's attachment, or nil.
func (n *attachments) get(id skerry.InstanceID) *skerry.Attachment {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.have[id]
	if !ok {
		return nil
	}
	return &a
}

func (n *attachments) stats(id skerry.InstanceID) (rx, tx int64) {
	if n.network == nil {
		return 0, 0
	}
	st, err := n.network.Stats(string(id))
	if err != nil {
		return 0, 0
	}
	return int64(st.RxBytes), int64(st.TxBytes)
}
