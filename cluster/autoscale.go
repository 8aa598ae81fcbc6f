package cluster

import (
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/autonomy"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// autoscale changes the share of the root's services whose load asks for it.
func (am *amender) autoscale(now time.Time, fx *wire.Effects) {
	if away, _ := am.uplink.Away(); !am.scaling.Begin(now, away) {
		return
	}
	type share struct {
		autonomy.Share
		gen skerry.Generation
	}
	by := map[skerry.ServiceKey]*share{}
	for _, p := range am.places {
		if of := p.Origin == "root" || am.overrides.Has(p.A.Service.App); !of || p.Group != "" || p.A.Spec.Scale == nil || p.A.Spec.Mode != spec.ModeService || p.Removing || p.Refused || p.ended() {
			continue
		}
		s := by[p.A.Service]
		if s == nil {
			s = &share{}
			by[p.A.Service] = s
		}
		if s.Spec == nil || s.gen < p.A.Gen {
			s.Spec, s.gen = &p.A.Spec, p.A.Gen
		}
		s.N++
		if p.Obs.Ready && am.workers.uses(p) {
			s.Load.Measured++
			s.Load.CPU += p.qos.CPU
		}
	}
	came := am.came()
	keys := make([]skerry.ServiceKey, 0, len(by))
	for k := range by {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b skerry.ServiceKey) int { return strings.Compare(a.String(), b.String()) })
	for _, k := range keys {
		s := by[k]
		s.Before, s.Total = s.N, s.N
		if s.Spec.Replicas != nil {
			s.Total = *s.Spec.Replicas
		}
		if am.overrides.Has(k.App) {
			a := am.Apps.App(k.App)
			before, total, ok := am.overrides.Share(k)
			if a == nil || a.Deleting || !ok || a.Manifest.Spec.Service(k.Service) == nil {
				continue
			}
			s.N, s.Before, s.Total = *a.Manifest.Spec.Service(k.Service).Replicas, before, total
		}
		s.Load.Came(came[k])
		if n, why := am.scaling.Want(now, k, &s.Share); n != s.N {
			var more wire.Effects
			if am.amend(now, k.App, apps.Scale{Service: k, Replicas: n, Actor: "its load: " + why}, &more); more.Err == nil {
				fx.Merge(more)
			}
		}
	}
}

// scaleOf tells why a service has so many instances here, as far as the site decides about that.
func (am *amender) scaleOf(k skerry.ServiceKey) *view.ScaleView {
	if v := am.scaling.View(k); v != nil {
		return v
	}
	return am.Apps.Scale(k)
}
