package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/internal/sbom"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/view"
)

// resolveTimeout bounds how long an apply waits for registries.
const resolveTimeout = 15 * time.Second

// Images is a tier's image store with its distribution API.
type Images struct {
	Store   *artifact.Store
	handler *artifact.Handler
	parent  *artifact.Source
	direct  *artifact.Source
	up      atomic.Pointer[Up]
	pulls   atomic.Pointer[FindPulls]
	uses    atomic.Pointer[FindUses]
	limits  artifact.Limits
	book    atomic.Pointer[OrgBook]
	held    held

	// Standbys are the processes that stand by for this one and copy its images; nil: there can be none, or a bucket has the images.
	Standbys *Standbys
	// Former is the role's store, if it may have names of images from before there was a bucket; nil: it has none.
	Former store.Store

	parsing  sync.Mutex // one list of contents at a time is read: each may take some 200 MiB
	mu       sync.Mutex // protects children
	children map[string]childPulls
}

// NewImages serves a store. hasParent says whether misses are asked of the tier above once SetParent was called. direct
// holds credentials and limits for registries.
func NewImages(st *artifact.Store, limits artifact.Limits, hasParent bool, direct *artifact.Source) *Images {
	m := &Images{Store: st, limits: limits, direct: direct, children: map[string]childPulls{}}
	if direct == nil {
		m.direct = &artifact.Source{Guard: &artifact.Guard{}}
	}
	m.handler = &artifact.Handler{Store: st, Registry: imageref.BuiltIn, Upstream: m.upstream, Authorize: m.authorize, MayRead: m.mayRead,
		Share: m.pushShare, Delete: m.delete}
	if hasParent {
		m.parent = &artifact.Source{BaseURL: "http://parent", Transport: parentTransport{m}}
		m.handler.UpstreamLocal = []*artifact.Source{m.parent}
	}
	return m
}

// StandBy has pushes wait for copies at the processes that stand by. It is called before anything is served.
func (m *Images) StandBy(s *Standbys) {
	s.Images, m.Standbys = m.Store, s
	m.handler.Copied = func(ctx context.Context, image digest.Digest) string {
		c := s.Wait(ctx, image)
		if c.Of == 0 {
			return ""
		}
		return fmt.Sprintf("%d/%d", c.Have, c.Of)
	}
}

// SetParent gives the link over which the tier above is asked.
func (m *Images) SetParent(u *Up) { m.up.Store(u) }

// parentTransport uses whatever link there is at the moment.
type parentTransport struct{ m *Images }

func (t parentTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	u := t.m.up.Load()
	if u == nil {
		return nil, link.ErrDown
	}
	return u.Transport.RoundTrip(r)
}

func (m *Images) upstream(string) []*artifact.Source {
	if m.parent != nil {
		return []*artifact.Source{m.parent, m.direct}
	}
	return []*artifact.Source{m.direct}
}

// ListImages lists the images of the built-in registry.
func (m *Images) ListImages(ctx context.Context) ([]view.ImageView, error) {
	var out []view.ImageView
	uses, err := m.usesByDigest(ctx)
	if err != nil {
		return nil, err
	}
	list := m.Store.List()
	tagged := map[string]bool{}
	for _, e := range list {
		if repo, _, byDigest := strings.Cut(e.Ref, "@"); !byDigest {
			tagged[repo[:max(strings.LastIndexByte(repo, ':'), 0)]+"@"+string(e.Digest)] = true
		}
	}
	for _, e := range list {
		name, ok := strings.CutPrefix(e.Ref, imageref.BuiltIn+"/")
		if !ok || tagged[e.Ref] {
			continue // of others, or known by its tag
		}
		v := view.ImageView{Name: name, Digest: string(e.Digest), Size: skerry.Bytes(e.Size), Added: e.Added, LastUsed: e.LastUsed,
			ImageUse: imageUse(uses[e.Digest])}
		if m.Standbys != nil && e.Pushed {
			v.Copies = m.Standbys.Copies(e.Digest)
		}
		for _, p := range e.Platforms {
			v.Platforms = append(v.Platforms, p.String())
		}
		out = append(out, v)
	}
	return out, nil
}

// collectEvery is how often a registry looks for images of its own that are beyond its limits. The first time is that long after the start:
// until then a site may not know yet what runs at its workers.
const collectEvery = time.Hour

// settleEvery is how often names are written again of which the depot may say something else.
const settleEvery = time.Minute

// tend keeps the registry within its limits until ctx ends.
func (m *Images) tend(ctx context.Context, log *slog.Logger, leader artifact.Leader) {
	if !m.loadDepot(ctx, log, leader) {
		return
	}
	tick, soon := time.NewTicker(collectEvery), time.NewTicker(settleEvery)
	defer tick.Stop()
	defer soon.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-soon.C:
			if err := artifact.SettleDepot(ctx, m.Store); err != nil && ctx.Err() == nil {
				log.Warn("names of images are not kept yet as they were last acknowledged", "err", err)
			}
			continue
		case <-tick.C:
		}
		switch p, err := m.collect(ctx); {
		case err != nil && ctx.Err() == nil:
			log.Warn("remove unused images", "err", err)
		case len(p.Names) > 0:
			log.Info("unused images were removed", "names", len(p.Names), "first", p.Names[0], "bytes", p.Bytes)
		}
	}
}

// depotRetry is how often a depot is asked that was away at the start.
const depotRetry = 5 * time.Second

// loadDepot asks until it is known what the depot has, and reports whether it is.
func (m *Images) loadDepot(ctx context.Context, log *slog.Logger, leader artifact.Leader) bool {
	said, waiting := "", false
	for {
		err := artifact.LoadDepot(ctx, m.Store)
		if err == nil {
			err = artifact.LeadDepot(ctx, m.Store, leader)
		}
		if err == nil && m.Former != nil { // no sooner: without them, nobody would have the images if the bucket is given up
			if err := ForgetImageNames(ctx, m.Former); err != nil && ctx.Err() == nil {
				log.Warn("names of images are still in the store: without the bucket they would count again", "err", err)
			}
		}
		if err == nil {
			if waiting {
				log.Info("the images are known again, and can be pushed and deleted")
			}
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		waiting = true
		if now := err.Error(); now != said { // once for each reason
			said = now
			log.Error("images can be neither pushed nor deleted, and only those on this disk are served", "err", err)
		}
		select {
		case <-time.After(depotRetry):
		case <-ctx.Done():
			return false
		}
	}
}

// collect removes nothing while it is not known what is in use.
func (m *Images) collect(ctx context.Context) (artifact.Pruned, error) {
	inUse := map[digest.Digest]bool{}
	m.held.mu.Lock() // before the uses: what is held no more is among them. What is held from now on was used within the hour.
	for ref := range m.held.images {
		inUse[ref.Digest] = true
	}
	m.held.mu.Unlock()
	uses, err := m.usesByDigest(ctx)
	if err != nil || m.uses.Load() == nil {
		return artifact.Pruned{}, err
	}
	for d := range uses {
		inUse[d] = true
	}
	return m.handler.Collect(ctx, m.limits, inUse)
}

func (m *Images) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// Resolve pins an image reference: REGISTRY/REPOSITORY@DIGEST. An image that certainly does not exist is an error; one
// whose registry cannot be reached from here is left to the site: its digest is empty.
func (m *Images) Resolve(ctx context.Context, ref string) (Pinned, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	image, err := imageref.Parse(ref)
	if err != nil {
		return Pinned{}, skerry.Errorf(skerry.CodeInvalid, "image %q: %v", ref, err).WithHint("write repository:tag or registry/repository:tag")
	}
	local, anywhere := imageref.Unnamed(ref, image)
	named := !anywhere
	var refused error
	if !named || image.Registry == imageref.BuiltIn {
		if f, ok := ctx.Value(registryAuthKey{}).(RegistryAuth); ok && f(local.Name(), artifact.ActionPull) != nil {
			refused = mayNotRead(ref, local)
		}
	}
	switch {
	case refused != nil && named:
		return Pinned{}, refused
	case refused != nil: // it may mean one of docker.io
	case !named || image.Registry == imageref.BuiltIn:
		res, err := m.resolveOwn(ctx, local)
		switch {
		case err == nil:
			return Pinned{local.Name() + "@" + string(res.Digest), res.Platforms}, nil
		case named && errors.Is(err, artifact.ErrNotFound):
			return Pinned{}, notFound(ref, "the built-in registry")
		case named:
			return Pinned{}, nil
		}
	}
	if org, ok := ctx.Value(orgKey{}).(string); ok && !m.direct.Guard.Serves(image.Registry, org) {
		if refused != nil {
			return Pinned{}, refused
		}
		return Pinned{}, skerry.Errorf(skerry.CodeInvalid, "image %s: registry %s is not there for organisation %s", ref, image.Registry, org).
			WithHint("use another registry, or ask the operator, who lists organisations with the registry's credentials (--registry-config)")
	}
	res, err := m.Store.Resolve(ctx, image.String(), artifact.Platform{}, m.upstream(image.Registry)...)
	no, never := errors.AsType[*artifact.RefusedError](err)
	switch {
	case err == nil:
		return Pinned{image.Name() + "@" + string(res.Digest), res.Platforms}, nil
	case refused != nil:
		return Pinned{}, refused
	case never && m.parent == nil:
		return Pinned{}, skerry.Errorf(skerry.CodeInvalid, "image %s: %v", ref, no).WithHint("%s", no.Hint())
	case errors.Is(err, artifact.ErrNotFound), errors.Is(err, artifact.ErrDenied):
		e := notFound(ref, image.Registry)
		e.Cause = err
		return Pinned{}, e
	case !named:
		return Pinned{}, skerry.Errorf(skerry.CodeInvalid, "image %s is not in the built-in registry, and %s cannot be reached: %v", ref,
			image.Registry, err).
			WithHint("push it with `skerry image push %s`, or name the registry that has it", ref)
	}
	return Pinned{}, nil
}

// resolveOwn resolves an image of the built-in registry, and holds it for the request. One that is deleted at that moment is looked for
// once more: its tag may mean another one by now.
func (m *Images) resolveOwn(ctx context.Context, local imageref.Ref) (artifact.Resolved, error) {
	for last := false; ; last = true {
		res, err := m.Store.Resolve(ctx, local.String(), artifact.Platform{}, m.handler.UpstreamLocal...)
		if err != nil || m.hold(ctx, imageref.Ref{Registry: local.Registry, Repository: local.Repository}, res.Digest) {
			return res, err
		}
		if last {
			return artifact.Resolved{}, &artifact.NotFoundError{Ref: local.Familiar(), Where: []string{"this store"}}
		}
	}
}

// imageUse gives what the API shows of the uses of an image.
func imageUse(u *apps.ImageUse) view.ImageUse {
	if u == nil {
		return view.ImageUse{}
	}
	return u.ImageUse
}

func notFound(ref, where string) *skerry.Error {
	return skerry.Errorf(skerry.CodeInvalid, "image %s does not exist at %s, or may not be read", ref, where).
		WithHint("check the name and tag; `skerry get images` lists what the built-in registry has, `skerry image push` adds to it")
}

// mayNotRead says what a user lacks for an image of the built-in registry, whether there is such an image or not.
func mayNotRead(ref string, local imageref.Ref) error {
	space, _, _ := strings.Cut(local.Repository, "/")
	return skerry.Errorf(skerry.CodeInvalid, "image %s does not exist at the built-in registry, or may not be read: it needs images:read in the organisation of namespace %s", ref, space).
		WithHint("an administrator of that organisation grants it by a role; else push the image to a namespace of your own")
}

type registryAuthKey struct{}

// RegistryAuth decides whether a user may do something with a repository of the built-in registry.
type RegistryAuth func(repository, action string) error

// WithRegistryAuth gives a request what the API found out about its user.
func WithRegistryAuth(ctx context.Context, f RegistryAuth) context.Context {
	return context.WithValue(ctx, registryAuthKey{}, f)
}

type orgKey struct{}

// WithOrg gives a request the organisation for which images are resolved. Without it the operator asks.
func WithOrg(ctx context.Context, org string) context.Context {
	return context.WithValue(ctx, orgKey{}, org)
}

// authorize lets children of this tier pull, users do what the API allows, and nobody else anything. Of other
// registries, which the role asks with the operator's credentials, users get those that the operator listed for
// everybody.
func (m *Images) authorize(r *http.Request, repository, action string) error {
	if link.PeerFrom(r.Context()) != nil {
		if action == artifact.ActionPull && repository != "" || r.URL.Path == "/v2/" {
			return nil // what it pulls Images.mayRead decides
		}
		return errors.New("a child may only pull")
	}
	if f, ok := r.Context().Value(registryAuthKey{}).(RegistryAuth); ok {
		registry, _, _ := strings.Cut(repository, "/")
		if g := m.direct.Guard; g != nil && repository != "" && registry != imageref.BuiltIn &&
			(!g.Lists(registry) || g.Organisations[registry] != nil) {
			return fmt.Errorf("registry %s is not passed on here; ask it yourself, or have the operator list it for everybody with --registry",
				registry)
		}
		return f(repository, action)
	}
	return artifact.ErrLogin
}

// Contents gives each package that an image contains, by the lists that are attached to it.
func (m *Images) Contents(ctx context.Context, image string, fetch bool, each func(sbom.Package)) error {
	ref, err := imageref.Parse(image)
	if err != nil {
		return err
	}
	var sources []*artifact.Source
	if fetch {
		if sources = m.upstream(ref.Registry); ref.Registry == imageref.BuiltIn {
			sources = m.handler.UpstreamLocal
		}
	}
	list, missing, err := artifact.SBOMs(ctx, m.Store, ref, sources...)
	if err != nil {
		return err
	}
	read := false
	for _, s := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := m.packages(&s, each)
		if err != nil && !(errors.Is(err, sbom.ErrNotSBOM) && sbom.Statement(s.MediaType)) { // how it was built is said beside
			return fmt.Errorf("list of its contents %s: %w", s.Digest, err)
		}
		read = read || err == nil
	}
	switch {
	case !read:
		return errors.New("no list of its contents (SBOM) is stored here")
	case len(missing) > 0:
		return fmt.Errorf("no list of its contents (SBOM) for %s is stored here", strings.Join(missing, ", "))
	}
	return nil
}

func (m *Images) packages(s *artifact.SBOM, each func(sbom.Package)) error {
	m.parsing.Lock()
	defer m.parsing.Unlock()
	data, err := s.Read()
	if err != nil {
		return err
	}
	packages, err := sbom.Parse(data)
	for _, p := range packages {
		each(p)
	}
	return err
}
