package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Operators of the root group sites by labels, such as region=west. Manifests name groups (placement.clusterLabels). The labels are the
// root's own: sites neither set them nor learn of them, as one could otherwise draw to itself what is meant for others.

const prefixLabels = "label/"

// LabelCluster sets and removes labels of a site. The result is the labels that it has then.
type LabelCluster struct {
	Name   string
	Set    map[string]string
	Remove []string
}

// labels owns those of sites, by site.
type labels struct {
	of       map[string]map[string]string
	apps     *apps.Controller
	children *members.Children
	fed      *sched.Federation
}

func newLabels(controller *apps.Controller, children *members.Children, fed *sched.Federation) *labels {
	return &labels{map[string]map[string]string{}, controller, children, fed}
}

func (l *labels) load(site string, value []byte) error {
	set := map[string]string{}
	l.of[site] = set
	return json.Unmarshal(value, &set)
}

// apply has the parts that place something know the labels of a site.
func (l *labels) apply(site string) {
	l.apps.SetLabels(site, l.of[site])
	l.fed.SetLabels(site, l.of[site])
}

func (l *labels) forget(site string, fx *wire.Effects) {
	if l.of[site] != nil {
		delete(l.of, site)
		fx.Delete(prefixLabels + site)
	}
	l.apps.SetLabels(site, nil)
}

// message takes changes of labels, and refuses applications for groups that no site is in. It reports whether it is one of these.
func (l *labels) message(msg any, fx *wire.Effects) bool {
	if apply, is := msg.(apps.Apply); is {
		fx.Err = l.noGroup(&apply)
		return fx.Err != nil
	}
	change, is := msg.(LabelCluster)
	if !is {
		return false
	}
	next, err := l.changed(&change)
	if err != nil {
		fx.Err = err
		return true
	}
	if fx.Result = maps.Clone(next); maps.Equal(next, l.of[change.Name]) {
		return true
	}
	if l.of[change.Name] = next; len(next) == 0 {
		l.forget(change.Name, fx)
	} else {
		data, err := json.Marshal(next)
		if err != nil {
			panic("labels always marshal: " + err.Error())
		}
		fx.Put(prefixLabels+change.Name, data)
	}
	l.apply(change.Name)
	l.apps.RetryNow()
	return true
}

// changed gives the labels that a site has after a change, or the reason to refuse it.
func (l *labels) changed(change *LabelCluster) (map[string]string, error) {
	if l.children.Get(change.Name) == nil {
		return nil, noCluster(change.Name)
	}
	next := map[string]string{}
	maps.Copy(next, l.of[change.Name])
	for _, key := range change.Remove {
		if _, there := next[key]; !there {
			return nil, skerry.Errorf(skerry.CodeNotFound, "cluster %s has no label %q", change.Name, key).
				WithHint("`skerry get clusters --show-labels` shows those that it has")
		}
		delete(next, key)
	}
	for key, value := range change.Set {
		if err := spec.CheckLabel(key, value); err != nil {
			return nil, err
		}
		next[key] = value
	}
	if len(next) > spec.MaxLabels {
		return nil, skerry.Errorf(skerry.CodeInvalid, "cluster %s would have %d labels; at most %d are allowed", change.Name, len(next),
			spec.MaxLabels)
	}
	return next, nil
}

// noGroup gives the reason to refuse an application whose manifest names a group that no site is in, or nil. A group that it had named
// before may have become empty: that is no reason against a change of something else.
func (l *labels) noGroup(apply *apps.Apply) error {
	old := l.apps.App(apply.App.Key())
	for n := range apply.App.Spec.Services {
		service := &apply.App.Spec.Services[n]
		if old != nil {
			was := old.Manifest.Spec.Service(service.Name)
			if was != nil && maps.Equal(was.Placement.ClusterLabels, service.Placement.ClusterLabels) {
				continue
			}
		}
		if text, hint := l.misses(&service.Placement); text != "" {
			path := fmt.Sprintf("spec.services[%d].placement.clusterLabels", n)
			return &skerry.Error{Code: skerry.CodeInvalid, Message: "service " + service.Name + ": " + text, Hint: hint,
				Problems: []skerry.Problem{{Path: path, Message: text, Hint: hint}}}
		}
	}
	return nil
}

// misses says that no site has the labels that a placement asks for, if that is so.
func (l *labels) misses(place *spec.Placement) (text, hint string) {
	has := func(site string) bool {
		return place.AllowsCluster(site) && spec.HasLabels(l.of[site], place.ClusterLabels)
	}
	if len(place.ClusterLabels) == 0 || slices.ContainsFunc(l.children.Names(), has) {
		return "", ""
	}
	pairs := spec.LabelText(place.ClusterLabels)
	return "no cluster that may run it has the labels " + pairs, "`skerry get clusters --show-labels` lists them; " +
		"`skerry label cluster NAME " + strings.ReplaceAll(pairs, ",", " ") + "` sets them"
}

func noCluster(name string) *skerry.Error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", name).WithHint("`skerry get clusters` lists them")
}

// elsewhere reports whether an instance may run at another site than the one that has it. A site that its manifest lists may still join.
func (l *labels) elsewhere(i *apps.Instance) bool {
	place := &i.Spec.Placement
	switch {
	case place.Cluster != "":
		return false
	case len(place.ClusterLabels) > 0:
		return slices.ContainsFunc(l.children.Names(), func(site string) bool { return site != i.Holder && l.apps.Allows(i.Spec, site) })
	default:
		return len(place.Clusters) == 0 || slices.ContainsFunc(place.Clusters, func(site string) bool { return site != i.Holder })
	}
}
