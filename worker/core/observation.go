package core

import (
	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// observation is what the cluster learns of an instance.
func (i *inst) observation() wire.Observation {
	o := wire.Observation{ID: i.A.ID, Gen: i.A.Gen, Fence: i.A.Fence, State: i.State, Phase: i.Phase, Ready: i.Ready, Reason: i.Reason,
		Restarts: i.Restarts, Restart: i.Restart, Exit: i.Exit, StartedAt: i.StartedAt, Ports: i.Ports, Address: i.Address, Runtime: i.Runtime,
		Digest:   i.Digest,
		Revision: i.revision(), Limits: i.Limits, Recipient: i.recipient, Devices: i.A.Devices, CrashLoop: crashLoop(i)}
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
