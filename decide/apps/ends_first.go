package apps

import (
	"slices"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Ask is the question to the holder of an instance whether one of a newer revision has a place there once this one has ended.
//
//	update wants it to end ──► asked ──yes──► it ends, its successor starts
//	                             │ ▲
//	                             └─┴─no: it runs on, and the holder says so again when that changes
type Ask struct {
	Revision string            `json:"revision"`
	Gen      skerry.Generation `json:"generation"`
	Spec     *spec.ServiceSpec `json:"spec"`
	Since    time.Time         `json:"since"`
	Answered bool              `json:"answered,omitempty"`
	Why      string            `json:"why,omitempty"` // there is no place
}

// askTime is how long a holder that has never answered such a question has. An older one never does.
const askTime = 5 * time.Second

// unask takes back what was asked about a revision that is no longer to come.
func (l *lifecycle) unask(i *Instance, rev string, fx *wire.Effects) {
	if i.Ask != nil && i.Ask.Revision != rev {
		i.Ask = nil
		l.saveInstance(i, fx)
	}
}

// mayEnd reports whether an instance may end before its successor starts: there is a place for that once it has ended. It asks its holder.
func (l *lifecycle) mayEnd(now time.Time, a *App, s *spec.ServiceSpec, i *Instance, fx *wire.Effects) bool {
	rev := a.revisions[s.Name]
	if i.Holder == "" || i.Spec.Mode.HasCopies() {
		return true // it runs nowhere, or in many places, for which nobody can answer
	}
	if i.Ask == nil {
		i.Ask = &Ask{Revision: rev, Gen: a.Gen, Spec: s, Since: now}
		l.saveInstance(i, fx)
	}
	if at := l.DataAt(i); at != "" && s.KeepsData() && !l.Allows(s, at) {
		why := "where the manifest does not allow it"
		if s.Placement.Cluster != "" {
			why = "and the manifest names cluster " + s.Placement.Cluster
		}
		l.answered(now, i, "its volume is at cluster "+at+", "+why, fx)
		return false
	}
	if at := l.DataAt(i); at != "" && s.KeepsData() && l.shut[at] { // its holder does not know, and may say that there is a place
		l.updateWaits(now, i, "its volume is at cluster "+at+", which gets no new instances", fx)
		return false
	}
	if i.Ask.Answered || i.Answers {
		return i.Ask.Answered && i.Ask.Why == ""
	}
	late := i.Ask.Since.Add(askTime)
	if now.Before(late) {
		l.wakeAt(a.Key(), late)
		return false
	}
	return true // its holder is older, and knows no such question
}

// answered takes what a holder says; why is empty if there is a place.
func (l *lifecycle) answered(now time.Time, i *Instance, why string, fx *wire.Effects) {
	k := i.Ask
	if k.Answered && k.Why == why {
		return
	}
	told := k.Why
	k.Answered, k.Why = true, why
	l.Look(i.Service.App)
	l.saveInstance(i, fx)
	if why != "" && why != told {
		l.updateWaits(now, i, why, fx)
	}
}

// updateWaits says, once, why an instance does not end for its successor.
func (l *lifecycle) updateWaits(now time.Time, i *Instance, why string, fx *wire.Effects) {
	text := "update waits: " + why
	said := func(k skerry.Condition) bool { return k.Type == skerry.UpToDate && !k.Status && k.Reason == text }
	if slices.ContainsFunc(i.Conditions, said) {
		return
	}
	i.Conditions = skerry.SetCondition(i.Conditions, now, skerry.UpToDate, false, text)
	l.saveInstance(i, fx)
	fx.Events = append(fx.Events, i.event(now, wire.EventWarning, "UpdateWaits",
		"it runs on until there is a place for the new version: "+why))
}

// hearAnswer takes an answer out of an observation.
func (l *lifecycle) hearAnswer(now time.Time, i *Instance, o *wire.Observation, fx *wire.Effects) {
	i.Answers = o.Successor != nil
	if k := i.Ask; k != nil && o.Successor != nil && o.Successor.Revision == k.Revision {
		l.answered(now, i, o.Successor.Why, fx)
	}
}
