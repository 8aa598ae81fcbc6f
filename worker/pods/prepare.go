package pods

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/core"
)

// prepared prepares an instance as long as pctx lasts. The answer to what wrote its files may come when the instance has gone; then they
// go, too.
func (w *Worker) prepared(ctx, pctx context.Context, asked core.Prepare) (done core.Prepared) {
	assigned := &asked.A
	if err := w.caught(func() { done = w.prepare(pctx, asked) }); err != nil {
		return core.Prepared{ID: assigned.ID, Fence: assigned.Fence, Runtime: spec.RuntimeOCI, Err: err.Error(), Permanent: true}
	}
	if known, err := w.holds(ctx, assigned.ID); err != nil || known {
		return done
	}
	w.log.Info("what was prepared for an instance that has gone is removed", "instance", string(assigned.ID))
	w.forget(assigned.ID)
	_ = insist(ctx, w.log, "the end of the files of "+string(assigned.ID), func() error {
		var there secretObject
		path := secretPath(w.fleet.opt.Style.Namespace, filesName(assigned.ID, w.name))
		if err := w.fleet.opt.Client.do(ctx, http.MethodGet, path, nil, nil, &there); err != nil {
			if absent(err) {
				return nil
			}
			return err
		}
		return w.dropSecret(ctx, &there.Metadata) // unless it is prepared again meanwhile
	})
	return done
}

// holds reports whether the core has an instance.
func (w *Worker) holds(ctx context.Context, id skerry.InstanceID) (bool, error) {
	return tier.View(ctx, w.role.Load(), func(c *core.Core) (bool, error) {
		_, ok := core.ViewOf(c, id)
		return ok, nil
	})
}

// forget drops what this program knows of an instance.
func (w *Worker) forget(id skerry.InstanceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.active, id)
	delete(w.ports, id)
	delete(w.orgs, id)
	delete(w.apps, id)
}

// prepare writes the files of an instance into a secret, and chooses its host ports.
func (w *Worker) prepare(ctx context.Context, asked core.Prepare) core.Prepared {
	assigned := &asked.A
	done := core.Prepared{ID: assigned.ID, Fence: assigned.Fence, Runtime: spec.RuntimeOCI}
	fail := func(err error) core.Prepared {
		_, never := errors.AsType[*Unsupported](err)
		if claim, is := errors.AsType[*claimError](err); is {
			never = claim.lasting
		}
		done.Err, done.Permanent = err.Error(), never || status(err) >= 400 && !passing(err)
		return done
	}
	if err := refuse(assigned); err != nil {
		return fail(err)
	}
	if node, _, _ := w.fleet.node(w.node); node != nil {
		if why := w.fleet.noSidecars(node); why != "" && len(assigned.Spec.Sidecars) > 0 {
			return fail(&Unsupported{"sidecars", why})
		}
		if why := tooOld(node, sleepSince); why != "" && sleeps(&assigned.Spec) {
			return fail(&Unsupported{"hooks that sleep", why})
		}
	}
	if err := (claims{w}).makeClaims(ctx, assigned); err != nil {
		return fail(err)
	}
	if r := assigned.Digest[assigned.Spec.Image]; r != "" {
		done.Digest = digestOf(r)
	}
	secret := &secretObject{APIVersion: "v1", Kind: "Secret", Data: map[string][]byte{},
		Metadata: w.fleet.opt.Style.metadata(filesName(assigned.ID, w.name), w.name, assigned)}
	// Kubernetes makes no version of what changes nothing, and a sweep that listed an earlier one must find another.
	secret.Metadata.Annotations[preparedNote] = rand.Text()
	for i, f := range assigned.Spec.Config {
		secret.Data[configKey(i)] = []byte(f.Content)
	}
	for i, name := range assigned.Spec.SecretNames(assigned.Service.App.Namespace) {
		value, err := w.secret(ctx, name)
		if err != nil {
			return fail(fmt.Errorf("secret %s: %w", name.Name, err))
		}
		for file, data := range value {
			secret.Data[secretKeyOf(i, file)] = data
		}
	}
	w.mu.Lock()
	w.apps[assigned.ID] = assigned.Service.App
	w.mu.Unlock()
	if err := persist(ctx, w.log, "the files of "+string(assigned.ID), func() error {
		secret.Data[endpoints] = w.endpointsOf(assigned.Service.App)
		return w.fleet.opt.Client.putSecret(ctx, secret)
	}); err != nil {
		return fail(err)
	}
	if !bytes.Equal(secret.Data[endpoints], w.endpointsOf(assigned.Service.App)) { // a change found no files, or was overwritten
		w.rewrite(assigned.ID, assigned.Service.App)
	}
	var err error
	if done.Ports, err = w.bind(assigned, asked.Keep); err != nil {
		return fail(err)
	}
	return done
}

// digestOf gives the digest of an image that has one, as NAME@DIGEST.
func digestOf(image string) string { return image[strings.LastIndexByte(image, '@')+1:] }

// secret fetches a secret from the cluster. It is kept in Kubernetes alone.
func (w *Worker) secret(ctx context.Context, name spec.SecretName) (spec.SecretValue, error) {
	up := w.up.Load()
	if up == nil || w.place.Secrets == nil {
		return nil, errors.New("there is no cluster to ask")
	}
	sealed, err := tier.AskSecret(ctx, up.Transport, w.place.Secrets, name)
	if err != nil {
		return nil, err
	}
	return w.place.Secrets.Open(name, sealed)
}

// bind chooses the host ports of an instance: those that it asks for, those that it had, else any that nobody has on the node as far as
// Kubernetes knows.
func (w *Worker) bind(assigned *spec.Assignment, keep []wire.PortBinding) ([]wire.PortBinding, error) {
	_, others, _ := w.fleet.node(w.node)
	w.mu.Lock()
	defer w.mu.Unlock()
	used := map[string]bool{}
	for _, n := range others {
		for _, p := range n.ports {
			used[p] = true
		}
	}
	for id, list := range w.ports {
		for _, b := range list {
			if id != assigned.ID && b.HostPort > 0 {
				used[hostPort(b.Protocol, b.HostPort)] = true
			}
		}
	}
	if err := w.shareLocked(assigned, keep); err != nil {
		return nil, err
	}
	out := []wire.PortBinding{}
	for _, p := range assigned.Spec.Ports {
		b := wire.PortBinding{Name: p.PortName(), Port: p.Port, HostPort: p.HostPort, Protocol: p.Proto()}
		if b.HostPort < 0 {
			b.HostPort = 0
			if i := slices.IndexFunc(keep, func(k wire.PortBinding) bool { return k.Name == b.Name && k.Port == b.Port }); i >= 0 &&
				!used[hostPort(b.Protocol, keep[i].HostPort)] {
				b.HostPort = keep[i].HostPort
			}
			for port := w.fleet.opt.FirstPort; b.HostPort == 0 && port <= w.fleet.opt.LastPort; port++ {
				if !used[hostPort(b.Protocol, port)] {
					b.HostPort = port
				}
			}
			if b.HostPort == 0 {
				return nil, fmt.Errorf("no host port from %d to %d is free on node %s", w.fleet.opt.FirstPort, w.fleet.opt.LastPort, w.node)
			}
		}
		used[hostPort(b.Protocol, b.HostPort)] = b.HostPort > 0
		out = append(out, b)
	}
	w.ports[assigned.ID], w.orgs[assigned.ID] = out, assigned.Org
	return out, nil
}

// shareLocked refuses an instance with which its organisation would have more than half of the ports that are chosen here, as on other
// workers, unless its level is privileged. One that had them before has them again.
func (w *Worker) shareLocked(assigned *spec.Assignment, keep []wire.PortBinding) error {
	first, last := w.fleet.opt.FirstPort, w.fleet.opt.LastPort
	asked, has, most := newPorts(assigned, keep), 0, (last-first+1)/2
	if asked == 0 || assigned.Level == "" || assigned.Level == spec.LevelPrivileged {
		return nil
	}
	for id, list := range w.ports {
		for _, bound := range list {
			if id != assigned.ID && w.orgs[id] == assigned.Org && bound.HostPort >= first && bound.HostPort <= last {
				has++
			}
		}
	}
	if has+asked > most {
		return fmt.Errorf("organisation %s has %d of the %d host ports that node %s gives one organisation, and the instance asks for %d",
			assigned.Org, has, most, w.node, asked)
	}
	return nil
}

// newPorts counts the host ports that are to be chosen for an instance, and that it has not had.
func newPorts(assigned *spec.Assignment, keep []wire.PortBinding) (asked int) {
	for _, port := range assigned.Spec.Ports {
		if port.HostPort < 0 && !slices.ContainsFunc(keep, func(had wire.PortBinding) bool { return had.Port == port.Port }) {
			asked++
		}
	}
	return asked
}
