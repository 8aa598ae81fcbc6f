package core

import (
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// postStart has done what is to be done once a container runs, and reports whether there is something: until it is done, an instance is
// not ready, and nothing of it is probed. An agent that was started anew in the meantime begins anew with it.
func (i *inst) postStart(name string, fx *wire.Effects) bool {
	k := i.Containers[name]
	if k == nil || !k.Running || !k.Hook {
		return false
	}
	hook := spec.PostStartOf(&i.A.Spec, name)
	if hook == nil {
		k.Hook = false
		return false
	}
	if name == spec.MainContainer {
		i.Reason = "postStart is not done yet"
	}
	fx.Actions = append(fx.Actions, RunHook{ID: i.A.ID, Name: name, Attempt: k.Attempt, Handle: k.Handle, Hook: *hook, Address: i.Address})
	return true
}

// hookDone goes on with a container whose postStart is done. One whose failed is ended; what follows is decided when it has exited.
func (life *lifecycle) hookDone(now time.Time, i *inst, m HookDone, fx *wire.Effects) {
	k := i.Containers[m.Name]
	if k == nil || k.Attempt != m.Attempt || !k.Running || !k.Hook || k.stop || i.Ending || i.halted() {
		return
	}
	main := m.Name == spec.MainContainer
	switch {
	case m.Err != "":
		why := "postStart of container " + m.Name + " failed: " + m.Err
		life.ledger.event(now, i, wire.EventWarning, "PostStartFailed", why, fx)
		if main {
			i.Reason, i.Unhealthy = why, true
		}
		i.stop(m.Name, fx)
	case main:
		k.Hook, i.Reason = false, ""
		i.probe(fx)
	default:
		k.Hook = false
		life.proceed(now, i, fx)
	}
	life.ledger.save(i, fx)
}
