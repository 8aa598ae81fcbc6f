package apps

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// secretKey names a secret.
type secretKey struct{ namespace, name string }

// secret is kept with its versions, oldest first. What they hold is sealed for a key that is not here.
type secret struct {
	Namespace string          `json:"namespace"`
	Name      string          `json:"name"`
	CreatedAt time.Time       `json:"createdAt"`
	Versions  []SecretVersion `json:"versions"`
	Use       int             `json:"use,omitempty"` // the version that somebody went back to; 0: the newest

	counts skerry.Bytes // of what is stored; see definitions
}

// SecretVersion is one version of a secret.
type SecretVersion struct {
	Number    int       `json:"number"`
	ID        string    `json:"id"` // as in SecretName.Version, without the number: it is sealed before its number is known
	Files     []string  `json:"files"`
	Size      int       `json:"size"`
	CreatedAt time.Time `json:"createdAt"`
	Author    string    `json:"author,omitempty"`
	Sealed    []byte    `json:"sealed"`
}

// PutSecret keeps a new secret or, with Rotate, a new version of one; services that do not keep to a version then get it. The
// server makes Version of Value, which no core is given.
type PutSecret struct {
	Namespace, Name string
	Rotate          bool
	Actor           string
	Value           spec.SecretValue
	Version         SecretVersion
}

// DeleteSecret removes a secret that no service names.
type DeleteSecret struct{ Namespace, Name, Actor string }

const prefixSecret = "secret/"

const (
	// maxSecrets is how many a namespace may have.
	maxSecrets = 500
	// keptVersions of a secret stay though nobody names them.
	keptVersions = 3
	// maxVersions is how many there are at most, named or not.
	maxVersions = 20
)

func (k secretKey) record() string { return prefixSecret + k.namespace + "/" + k.name }

// secrets has the secrets of namespaces with their versions, and has the services that name one follow it.
type secrets struct {
	life     *lifecycle
	tenants  *tenants
	history  *history
	networks *networks
	byName   map[secretKey]*secret
}

func (ss *secrets) load(value []byte) error {
	return read(value, func(x *secret) {
		ss.byName[secretKey{x.Namespace, x.Name}] = x
		ss.life.stored.note(x.Namespace, &x.counts, len(value))
	})
}

// current is how a manifest names a version.
func (v *SecretVersion) current() string { return itoa(v.Number) + "-" + v.ID }

func (x *secret) newest() *SecretVersion { return &x.Versions[len(x.Versions)-1] }

// find gives a version by what a manifest calls it, or nil.
func (x *secret) find(current string) *SecretVersion {
	for i := range x.Versions {
		if x.Versions[i].current() == current {
			return &x.Versions[i]
		}
	}
	return nil
}

// Secret gives a version of a secret as it is sealed, or nil.
func (ss *secrets) Secret(n spec.SecretName) []byte {
	if x := ss.byName[secretKey{n.Namespace, n.Name}]; x != nil {
		if v := x.find(n.Version); v != nil {
			return v.Sealed
		}
	}
	return nil
}

// IsSecret reports whether the record of a key is of a secret, whose versions are sealed.
func IsSecret(key string) bool { return strings.HasPrefix(key, prefixSecret) }

// SealedIn gives the versions that the record of a secret has, as they are sealed.
func SealedIn(value []byte) (out [][]byte) {
	var x secret
	if json.Unmarshal(value, &x) != nil {
		return nil
	}
	for i := range x.Versions {
		out = append(out, x.Versions[i].Sealed)
	}
	return out
}

// anyOf names a secret of a namespace, or gives "".
func (ss *secrets) anyOf(namespace string) string {
	for k := range ss.byName {
		if k.namespace == namespace {
			return k.name
		}
	}
	return ""
}

func (ss *secrets) put(now time.Time, m PutSecret) (any, wire.Effects, error) {
	var fx wire.Effects
	if ss.tenants.spaces[m.Namespace] == nil {
		return nil, fx, skerry.Errorf(skerry.CodeNotFound, "there is no namespace %q", m.Namespace).WithHint("`skerry get namespaces` lists them")
	}
	if err := skerry.CheckName(m.Name); err != nil {
		return nil, fx, skerry.Errorf(skerry.CodeInvalid, "name of the secret: %s", err)
	}
	if len(m.Version.Sealed) == 0 || m.Version.ID == "" {
		return nil, fx, skerry.Errorf(skerry.CodeInternal, "the secret is not sealed")
	}
	k := secretKey{m.Namespace, m.Name}
	x := ss.byName[k]
	switch {
	case x == nil && m.Rotate:
		return nil, fx, noSecret(k)
	case x != nil && !m.Rotate:
		return nil, fx, skerry.Errorf(skerry.CodeConflict, "namespace %s has a secret %q already", m.Namespace, m.Name).WithHint("`skerry secret rotate %s` makes a new version of it", m.Name)
	case x == nil && len(ss.Secrets(m.Namespace)) >= maxSecrets:
		return nil, fx, skerry.Errorf(skerry.CodeQuota, "namespace %s has %d secrets", m.Namespace, maxSecrets).WithHint("remove some that nobody uses")
	case x == nil:
		x = &secret{Namespace: m.Namespace, Name: m.Name, CreatedAt: now}
	}
	next := *x
	next.Versions = slices.Clone(x.Versions)
	if ss.prune(&next); len(next.Versions) >= maxVersions {
		return nil, fx, skerry.Errorf(skerry.CodeQuota, "%d versions of secret %s are named by services, or by versions of them that are kept", len(next.Versions), m.Name).
			WithHint("apply their manifests without a version, or remove what is old")
	}
	v := m.Version
	v.Number, v.CreatedAt, v.Author = 1, now, m.Actor
	if len(x.Versions) > 0 {
		v.Number = x.newest().Number + 1
	}
	next.Versions, next.Use = append(next.Versions, v), 0
	err := ss.fit(&next)
	if err == nil {
		err = ss.tenants.mayDefine(ss.tenants.OrgOf(m.Namespace), len(v.Sealed), x.counts == 0)
	}
	if err != nil {
		return nil, fx, err
	}
	ss.keep(now, k, &next, m.Actor, false, &fx)
	return ss.view(&next), fx, nil
}

// keep puts a secret in the place of what it was, and has services follow it.
func (ss *secrets) keep(now time.Time, k secretKey, x *secret, actor string, back bool, fx *wire.Effects) {
	ss.byName[k] = x
	ss.follow(now, x, actor, back, fx)
	ss.life.stored.put(fx, k.record(), k.namespace, &x.counts, mustJSON(x))
}

// follow gives the version in use to the services that name none, at once if they go back to it. A job has what it was applied with: it would run once more otherwise.
func (ss *secrets) follow(now time.Time, x *secret, actor string, back bool, fx *wire.Effects) {
	for _, a := range ss.life.Apps() {
		if a.Manifest.Metadata.Namespace != x.Namespace || a.Deleting || a.Delegated {
			continue
		}
		next := *a
		next.Manifest = cloneManifest(a.Manifest)
		var names []string
		current := x.used().current()
		for i := range next.Manifest.Spec.Services {
			s := &next.Manifest.Spec.Services[i]
			s.Secrets = slices.Clone(s.Secrets)
			for n := range s.Secrets {
				u := &s.Secrets[n]
				if u.Name != x.Name || u.Version != 0 || s.Mode == spec.ModeJob {
					continue
				}
				if f := next.Refused[s.Name]; f != nil && !slices.ContainsFunc(f.Spec.Secrets, func(o spec.SecretUse) bool { return o.Name == x.Name && o.Current == current }) {
					next.Refused = without(next.Refused, s.Name) // what was taken back had another value
				}
				if u.Current != current {
					u.Current = current
					names = append(names, s.Name)
				}
			}
		}
		if names = slices.Compact(names); len(names) == 0 {
			if len(next.Refused) < len(a.Refused) {
				a.Refused = next.Refused
				ss.life.saveApp(a, fx)
			}
			continue
		}
		next.Turns = turns(&next.Manifest, names)
		old := *a
		next.Gen++
		next.UpdatedAt, next.Author, next.revisions = now, actor, revisionsOf(&next.Manifest)
		*a = next // without asking the quota, which may be smaller by now: it takes no more than it did
		ss.networks.readdress(now, a, fx)
		ss.history.keep(&old, a, fx)
		for _, name := range names {
			if back && a.Manifest.Spec.Service(name).Mode == spec.ModeService {
				a.setRollout(name, &Rollout{Revision: a.revisions[name], Gen: a.Gen, StartedAt: now, Wave: 1, Limit: everything, Back: true})
			}
		}
		ss.life.Look(a.Key())
		ss.life.saveApp(a, fx)
		reason := pick(back, "SecretUndone", "SecretRotated")
		for _, name := range names {
			text := "generation " + itoa(int(a.Gen)) + " has version " + itoa(x.used().Number) + " of secret " + x.Name + ", by " + orNobody(actor)
			ss.life.appEvent(fx, now, a, name, reason, text)
		}
	}
}

// SecretNames gives the versions that are named by a manifest, an earlier version of one, or an instance.
func (ss *secrets) SecretNames() map[spec.SecretName]bool {
	out := map[spec.SecretName]bool{}
	see := func(namespace string, services ...spec.ServiceSpec) {
		for i := range services {
			for _, n := range services[i].SecretNames(namespace) {
				out[n] = true
			}
		}
	}
	for k, a := range ss.life.apps {
		see(k.Namespace, a.Manifest.Spec.Services...)
		for _, f := range a.Refused {
			see(k.Namespace, f.Spec)
		}
	}
	for k, list := range ss.history.earlier {
		for _, p := range list {
			see(k.Namespace, p.Manifest.Spec.Services...)
		}
	}
	for _, i := range ss.life.inst {
		if i.Spec != nil {
			see(i.Service.App.Namespace, *i.Spec)
		}
	}
	return out
}

// prune forgets old versions that nothing names.
func (ss *secrets) prune(x *secret) {
	named := ss.SecretNames()
	var kept []SecretVersion
	for n := range x.Versions {
		if v := &x.Versions[n]; named[spec.SecretName{Namespace: x.Namespace, Name: x.Name, Version: v.current()}] || n >= len(x.Versions)-keptVersions || v.Number == x.Use {
			kept = append(kept, *v)
		}
	}
	x.Versions = kept
}

// fit takes away the oldest versions that nobody names, as far as the record of a secret would be too large with them.
func (ss *secrets) fit(x *secret) error {
	named := ss.SecretNames()
	for len(mustJSON(x)) > maxSecretRecord {
		n := slices.IndexFunc(x.Versions[:len(x.Versions)-1], func(v SecretVersion) bool {
			return !named[spec.SecretName{Namespace: x.Namespace, Name: x.Name, Version: v.current()}]
		})
		if n < 0 {
			return skerry.Errorf(skerry.CodeQuota, "secret %s is too large for another version of it: services, or versions of them that are kept, "+
				"name %d others, and all together may take %d bytes as they are stored",
				x.Name, len(x.Versions)-1, maxSecretRecord).WithHint("make another secret, or put large files into an image")
		}
		x.Versions = slices.Delete(x.Versions, n, n+1)
	}
	return nil
}

func noSecret(k secretKey) error {
	return skerry.Errorf(skerry.CodeNotFound, "namespace %s has no secret %q", k.namespace, k.name).WithHint("`skerry secret ls` lists them")
}

func (ss *secrets) delete(m DeleteSecret) (wire.Effects, error) {
	var fx wire.Effects
	k := secretKey{m.Namespace, m.Name}
	x := ss.byName[k]
	if x == nil {
		return fx, noSecret(k)
	}
	if by := ss.usersOf(x); len(by) > 0 {
		return fx, skerry.Errorf(skerry.CodeConflict, "secret %s is used by %s", m.Name, strings.Join(by, ", ")).WithHint("take it out of their manifests, or delete them, first")
	}
	delete(ss.byName, k)
	ss.life.stored.remove(&fx, k.record(), k.namespace, &x.counts)
	return fx, nil
}

// usersOf lists the services that name a secret, or of which something runs that has it.
func (ss *secrets) usersOf(x *secret) []string {
	out := []string{}
	uses := func(s *spec.ServiceSpec) bool {
		return s != nil && slices.ContainsFunc(s.Secrets, func(u spec.SecretUse) bool { return u.Name == x.Name })
	}
	for k, a := range ss.life.apps {
		for i := range a.Manifest.Spec.Services {
			if s := &a.Manifest.Spec.Services[i]; k.Namespace == x.Namespace && !a.Delegated && uses(s) {
				out = append(out, k.Name+"/"+s.Name)
			}
		}
	}
	for _, i := range ss.life.inst {
		k := i.Service.App
		if a := ss.life.apps[k]; k.Namespace == x.Namespace && i.Live() && a != nil && !a.Delegated && uses(i.Spec) {
			out = append(out, k.Name+"/"+i.Service.Service)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// auditStored says where what is counted is not what the records count for.
func (ss *secrets) auditStored() (wrong []string) {
	sums := map[string]skerry.Bytes{}
	for k, a := range ss.life.apps {
		sums[k.Namespace] += a.counts
	}
	for k, list := range ss.history.earlier {
		for _, p := range list {
			sums[k.Namespace] += p.counts
		}
	}
	for k, x := range ss.byName {
		sums[k.namespace] += x.counts
	}
	for k, list := range ss.life.claimed {
		for _, claimed := range list {
			sums[k.Namespace] += claimed.counts
		}
	}
	maps.DeleteFunc(sums, func(_ string, n skerry.Bytes) bool { return n == 0 })
	if !maps.Equal(sums, ss.life.stored.by) {
		wrong = append(wrong, fmt.Sprintf("records are counted as %v and count for %v", ss.life.stored.by, sums))
	}
	return wrong
}

func (ss *secrets) view(x *secret) view.SecretView {
	n := x.used()
	v := view.SecretView{Namespace: x.Namespace, Name: x.Name, Version: n.Number, Files: n.Files, Size: n.Size, CreatedAt: x.CreatedAt, UpdatedAt: n.CreatedAt, Author: n.Author, UsedBy: ss.usersOf(x)}
	if ns := ss.tenants.spaces[x.Namespace]; ns != nil {
		v.Org = ns.Org
	}
	for _, o := range slices.Backward(x.Versions) {
		v.Versions = append(v.Versions, view.SecretVersionView{Version: o.Number, Files: o.Files, Size: o.Size, CreatedAt: o.CreatedAt, Author: o.Author})
	}
	return v
}

// Secrets lists the secrets of a namespace by name, without what they hold.
func (ss *secrets) Secrets(namespace string) []view.SecretView {
	var names []string
	for k := range ss.byName {
		if k.namespace == namespace {
			names = append(names, k.name)
		}
	}
	slices.Sort(names)
	out := []view.SecretView{}
	for _, name := range names {
		out = append(out, ss.view(ss.byName[secretKey{namespace, name}]))
	}
	return out
}

// resolve fills in which versions a manifest means; one that is not there is refused by name.
func (ss *secrets) resolve(app *spec.Application) error {
	ns := app.Metadata.Namespace
	var problems []skerry.Problem
	for i := range app.Spec.Services {
		s := &app.Spec.Services[i]
		for n := range s.Secrets {
			u := &s.Secrets[n]
			u.Current = ""
			at := "spec.services[" + itoa(i) + "].secrets[" + itoa(n) + "]"
			x := ss.byName[secretKey{ns, u.Name}]
			if x == nil {
				problems = append(problems, skerry.Problem{Path: at + ".name", Message: "namespace " + ns + " has no secret \"" + u.Name + "\"",
					Hint: "make it with `skerry secret create " + u.Name + " --namespace " + ns + " --from-file FILE`"})
				continue
			}
			if u.Version == 0 {
				u.Current = x.used().current()
			}
			for j := range x.Versions {
				if v := &x.Versions[j]; u.Version == v.Number {
					u.Current = v.current()
				}
			}
			if u.Current == "" {
				problems = append(problems, skerry.Problem{Path: at + ".version", Message: "secret " + u.Name + " has no version " + itoa(u.Version) + " any more, or not yet",
					Hint: "leave it out for the one in use, " + itoa(x.used().Number)})
			}
		}
	}
	if len(problems) > 0 {
		return &skerry.Error{Code: skerry.CodeInvalid, Message: "the manifest is not valid", Problems: problems}
	}
	return nil
}

// have checks that the versions are there which a manifest of before, or of a site, names.
func (ss *secrets) have(app *spec.Application) error {
	for i := range app.Spec.Services {
		for _, n := range app.Spec.Services[i].SecretNames(app.Metadata.Namespace) {
			if ss.Secret(n) == nil {
				return skerry.Errorf(skerry.CodeConflict, "version %s of secret %s no longer exists", n.Version, n.Name).WithHint("apply the manifest again, which takes the newest")
			}
		}
	}
	return nil
}

// DelegateSecrets fills in the versions of a manifest for a delegated application: those that it had, for the owner alone knows others.
func DelegateSecrets(app, had *spec.Application) error {
	known := map[string]string{}
	for i := range had.Spec.Services {
		for _, u := range had.Spec.Services[i].Secrets {
			known[u.Name] = u.Current
		}
	}
	for i := range app.Spec.Services {
		s := &app.Spec.Services[i]
		for n := range s.Secrets {
			u := &s.Secrets[n]
			number, _, _ := strings.Cut(known[u.Name], "-")
			if number == "" || u.Version != 0 && itoa(u.Version) != number {
				return skerry.Errorf(skerry.CodeUnavailable, "this site does not have that version of secret %s, and the root, which does, is away", u.Name).WithHint("name what the application had, or wait for the root")
			}
			u.Current = known[u.Name]
		}
	}
	return nil
}
