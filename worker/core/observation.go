package core

import (
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// wake is when the instance has something to do by itself.
func (i *inst) wake() time.Time {
	next := i.retryAt
	if at := i.comesBackAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	if !i.resizeAt.IsZero() && (next.IsZero() || i.resizeAt.Before(next)) {
		next = i.resizeAt
	}
	if at := steadyAt(i); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	for _, k := range i.Containers {
		if !k.retryAt.IsZero() && (next.IsZero() || k.retryAt.Before(next)) {
			next = k.retryAt
		}
	}
	return next
}

// comesBackAt is when an instance goes on whose state nobody has fetched, or the zero time.
func (i *inst) comesBackAt() time.Time {
	if l := i.Left; l != nil && l.Done && !l.Sent && !i.Ending {
		return l.Since.Add(sendTime)
	}
	return time.Time{}
}

// observation is what the cluster learns of an instance.
func (i *inst) observation() wire.Observation {
	o := wire.Observation{ID: i.A.ID, Gen: i.A.Gen, Fence: i.A.Fence, State: i.State, Phase: i.Phase, Ready: i.Ready, Reason: i.Reason,
		Restarts: i.Restarts, Restart: i.Restart, Exit: i.Exit, StartedAt: i.StartedAt, Ports: i.Ports, Address: i.Address, Runtime: i.Runtime,
		Digest:   i.Digest,
		Revision: i.revision(), Limits: i.Limits, Recipient: i.recipient, Devices: i.A.Devices, CrashLoop: crashLoop(i)}
	if c := i.Containers[spec.MainContainer]; c != nil && c.Running {
		o.Monitor = c.Monitor
	}
	if i.restarting || i.State != skerry.Running {
		o.Ready = false
	}
	o.Reason, o.CrashLoop = shortened(o.Reason), shortened(o.CrashLoop)
	return o
}

func shortened(text string) string {
	if len(text) > 500 {
		return text[:500] + "..."
	}
	return text
}
