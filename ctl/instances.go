package ctl

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// findInstances finds what a person means: an instance (by name, or the beginning of one that no other shares), all of
// APP/SERVICE, or all of APP. They come in order, those that run first.
func (a *app) findInstances(ctx context.Context, client *api.Client, name string) ([]wire.Instance, error) {
	name = trimKind(trimKind(name, "instance"), "service")
	if strings.Contains(name, "/") {
		service, err := a.serviceKey(name)
		if err != nil {
			return nil, err
		}
		list, err := client.Instances(ctx, api.InstanceFilter{Namespace: service.App.Namespace, App: service.App.Name, Service: service.Service})
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			return inOrder(list), nil
		}
		v, err := client.App(ctx, service.App)
		if err != nil {
			return nil, err
		}
		var known []string
		for _, s := range v.Services {
			if s.Name == service.Service {
				return nil, skerry.Errorf(skerry.CodeNotFound, "service %s has no instances", service).WithHint("`skerry describe app %s` shows why", service.App.Name)
			}
			known = append(known, s.Name)
		}
		return nil, skerry.Errorf(skerry.CodeNotFound, "application %s has no service %q", service.App, service.Service).WithHint("%s",
			spec.Suggest(service.Service, known))
	}
	inst, err := client.Instance(ctx, skerry.InstanceID(name))
	if err == nil {
		return []wire.Instance{inst}, nil
	}
	if skerry.AsError(err).Code != skerry.CodeNotFound {
		return nil, err
	}
	list, err := client.Instances(ctx, api.InstanceFilter{Namespace: a.namespace()})
	if err != nil {
		return nil, err
	}
	var known []string
	var ofApp []wire.Instance
	for _, inst := range list {
		known = append(known, string(inst.ID))
		if inst.Service.App.Name == name {
			ofApp = append(ofApp, inst)
		}
	}
	if len(ofApp) > 0 {
		return inOrder(ofApp), nil
	}
	if n := uniquePrefix(known, name); n >= 0 {
		return list[n : n+1], nil
	}
	hint := "`skerry get instances` lists them; use APP/SERVICE for those of a service"
	if s := spec.Suggest(name, known); strings.HasPrefix(s, "did you mean") {
		hint = s
	}
	return nil, skerry.Errorf(skerry.CodeNotFound, "there is no instance %q in namespace %s", name, a.namespace()).WithHint("%s", hint)
}

func inOrder(list []wire.Instance) []wire.Instance {
	rank := func(i wire.Instance) int {
		switch {
		case skerry.HasCondition(i.Conditions, skerry.Ready) && !i.Stopping:
			return 0
		case i.State == skerry.Running && !i.Stopping:
			return 1
		case i.Stopping:
			return 3
		}
		return 2
	}
	slices.SortStableFunc(list, func(x, y wire.Instance) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Service.String(), y.Service.String()), cmp.Compare(x.Ordinal, y.Ordinal))
	})
	return list
}

// oneInstance finds the best instance for a name: one that is ready, if there is any.
func (a *app) oneInstance(ctx context.Context, c *api.Client, name string) (wire.Instance, error) {
	list, err := a.findInstances(ctx, c, name)
	if err != nil {
		return wire.Instance{}, err
	}
	return list[0], nil
}

// instanceID finds exactly one instance.
func (a *app) instanceID(ctx context.Context, c *api.Client, name string) (skerry.InstanceID, error) {
	list, err := a.findInstances(ctx, c, name)
	if err != nil {
		return "", err
	}
	if len(list) > 1 {
		return "", skerry.Errorf(skerry.CodeInvalid, "%q is ambiguous: it matches %d instances", name, len(list)).
			WithHint("name one of them: %s, ...", list[0].ID)
	}
	return list[0].ID, nil
}
