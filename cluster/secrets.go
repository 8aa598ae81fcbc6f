package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/view"
)

// A site fetches a secret of the root's when the first of its workers asks for it, and keeps it as it comes: sealed for the
// site's key. Without the root it goes on with those. Secrets of the site's own applications are kept by package apps.

// prefixHeld begins the records of what is kept of the root's secrets. The core does not know them.
const prefixHeld = "meta/secret/"

// askRoot bounds a question to the root: workers ask again.
const askRoot = 20 * time.Second

// heldSecret is such a record.
type heldSecret struct {
	Name   spec.SecretName `json:"name"`
	Sealed []byte          `json:"sealed"`
}

// Records are the kinds of records of a cluster: those of its core, and what the server keeps.
func Records() map[string]func() any {
	out := core.Records()
	out[prefixHeld] = func() any { return new(heldSecret) }
	return out
}

func heldKey(n spec.SecretName) string {
	return prefixHeld + n.Namespace + "/" + n.Name + "/" + n.Version
}

// Secrets lists the secrets of a namespace for the site's own applications, without what they hold.
func (s *Server) Secrets(ctx context.Context, namespace string) ([]view.SecretView, error) {
	return tier.View(ctx, s.Role, func(c *core.Core) ([]view.SecretView, error) { return c.Apps.Secrets(namespace), nil })
}

// findSecret gives a worker a secret that something uses which it was given.
func (s *Server) findSecret(ctx context.Context, worker string, n spec.SecretName) ([]byte, error) {
	own, err := tier.View(ctx, s.Role, func(c *core.Core) ([]byte, error) {
		if !c.HasSecret(worker, n) {
			return nil, skerry.Errorf(skerry.CodeNotFound, "no instance that worker %s was given uses such a secret", worker)
		}
		return c.Apps.Secret(n), nil
	})
	if err != nil || own != nil {
		return own, err
	}
	return s.heldSecret(ctx, n)
}

// heldSecret gives a secret of the root's as the site keeps it, after asking for it if it does not.
func (s *Server) heldSecret(ctx context.Context, secret spec.SecretName) ([]byte, error) {
	rec, err := s.Store.Get(ctx, heldKey(secret))
	var held heldSecret
	switch {
	case err == nil:
		if err = json.Unmarshal(rec.Value, &held); err == nil && s.opt.Secrets.Opens(held.Sealed) {
			return held.Sealed, nil // else it was kept by a machine with another key
		}
	case !errors.Is(err, store.ErrNotFound):
		return nil, err
	}
	up := s.up.Load()
	if up == nil {
		return nil, skerry.Errorf(skerry.CodeNotFound, "the site has no secret %s of namespace %s", secret.Name, secret.Namespace)
	}
	if ok, why := up.Connected(); !ok {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "the root has secret %s, and cannot be reached: %s", secret.Name, why)
	}
	ctx, cancel := context.WithTimeout(ctx, askRoot)
	defer cancel()
	held.Name = secret
	if held.Sealed, err = tier.AskSecret(ctx, up.Transport, s.opt.Secrets, secret); err != nil {
		return nil, err
	}
	value, err := json.Marshal(held)
	if err != nil {
		return nil, err
	}
	ops := []store.Op{{Key: heldKey(secret), Value: value}}
	for _, old := range unusedSecrets(ctx, s) {
		if old != heldKey(secret) {
			ops = append(ops, store.Op{Key: old, Delete: true})
		}
	}
	if _, err = s.Store.Commit(ctx, ops); err != nil { // it is of use all the same
		s.opt.Log.Warn("a secret of the root's is not kept at the site", "secret", secret.Namespace+"/"+secret.Name, "err", err)
	}
	return held.Sealed, nil
}

// unusedSecrets lists the records of secrets that nothing at the site names any more.
func unusedSecrets(ctx context.Context, s *Server) []string {
	recs, _, err := s.Store.List(ctx, prefixHeld)
	if err != nil {
		return nil // they stay until the next one comes
	}
	out, err := tier.View(ctx, s.Role, func(c *core.Core) (out []string, err error) {
		named := c.SecretNames()
		for _, r := range recs {
			parts := strings.Split(strings.TrimPrefix(r.Key, prefixHeld), "/")
			if len(parts) != 3 || !named[spec.SecretName{Namespace: parts[0], Name: parts[1], Version: parts[2]}] {
				out = append(out, r.Key)
			}
		}
		return out, nil
	})
	if err != nil {
		return nil
	}
	return out
}
