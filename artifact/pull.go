package artifact

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/panics"
)

// pullParallel is how many blobs of one image are fetched at a time.
const pullParallel = 3

// Resolved is what a name means now.
type Resolved struct {
	Ref       imageref.Ref
	Digest    digest.Digest // of the index, or of the manifest when there is no index: what a generation pins
	Manifest  digest.Digest // of the manifest for the platform asked for
	Platforms []Platform    // all that the image offers
	Size      int64         // bytes of config and layers for the platform
}

// Resolve finds out what ref means. The sources are asked in order; when none can be reached, what the store knows
// counts, so that a site goes on without its registry. Without sources, only the store is asked. An image that does not
// offer the platform is a *PlatformError, one that does not exist a *NotFoundError. The zero platform takes the
// first that is offered.
func (s *Store) Resolve(ctx context.Context, ref string, p Platform, sources ...*Source) (Resolved, error) {
	r, err := imageref.Parse(ref)
	if err != nil {
		return Resolved{}, err
	}
	res, _, err := s.resolve(ctx, r, p, sources)
	if err == nil {
		// Somebody is about to run it. Other repositories with the same image are not told: they may be somebody else's.
		s.used(r)
		s.used(r.Pinned(res.Digest))
	}
	return res, err
}

// resolve also gives the image's manifest. Manifests and config are in the store afterwards.
func (s *Store) resolve(ctx context.Context, ref imageref.Ref, platform Platform, sources []*Source) (Resolved, *manifest, error) {
	top, err := s.manifest(ctx, ref, ref.Identifier(), sources)
	if err != nil {
		return Resolved{}, nil, err
	}
	out := Resolved{Ref: ref, Digest: top.desc.Digest, Manifest: top.desc.Digest}
	m := top
	if top.index != nil {
		desc, offers, ok := top.choose(platform)
		if !ok {
			return Resolved{}, nil, &PlatformError{Ref: ref.Familiar(), Want: platform, Offers: offers}
		}
		out.Platforms, out.Manifest = offers, desc.Digest
		if m, err = s.part(ctx, ref, desc.Digest, sources); err != nil {
			return Resolved{}, nil, err
		}
		if m.image == nil {
			return Resolved{}, nil, fmt.Errorf("image %s: %w: its index holds another index", ref.Familiar(), ErrInvalid)
		}
	}
	for _, c := range m.children() {
		out.Size += c.Size
	}
	for i, l := range m.image.Layers {
		if err := layerHere(ctx, s, ref, l, sources); err != nil {
			return Resolved{}, nil, fmt.Errorf("image %s: layer %d: %w", ref.Familiar(), i, err)
		}
	}
	defer s.pin(m.image.Config.Digest)()
	if err := s.fetchBlob(ctx, ref, m.image.Config, sources, nil); err != nil {
		return Resolved{}, nil, fmt.Errorf("image %s: config: %w", ref.Familiar(), err)
	}
	raw, err := s.readBlob(m.image.Config.Digest)
	if err != nil {
		return Resolved{}, nil, fmt.Errorf("image %s: %w", ref.Familiar(), err)
	}
	c, err := parseConfig(raw, len(m.image.Layers))
	if err != nil {
		return Resolved{}, nil, fmt.Errorf("image %s: %w", ref.Familiar(), err)
	}
	if have := fromSpec(&c.Platform); platform.runs(have) == 0 {
		return Resolved{}, nil, &PlatformError{Ref: ref.Familiar(), Want: platform, Offers: []Platform{have}}
	} else if top.index == nil || len(out.Platforms) == 1 && out.Platforms[0] == (Platform{}) {
		out.Platforms = []Platform{have}
	}
	return out, m, nil
}

// layerHere refuses a layer that lies on a server other than the registry, unless the registry has it nevertheless.
func layerHere(ctx context.Context, s *Store, repo imageref.Ref, layer ocispec.Descriptor, sources []*Source) error {
	if _, here := s.hasBlob(layer.Digest); here && s.proofs.has(repo, layer.Digest) || !elsewhere(layer) {
		return nil
	}
	for _, src := range sources {
		if _, err := src.known(ctx, repo, "blobs/"+layer.Digest.String()); !errors.Is(err, ErrNotFound) {
			return nil // there, or it is found out when it is fetched
		}
	}
	return fmt.Errorf("%w: it lies on another server, which is not supported; push the image with its non-distributable layers", ErrInvalid)
}

// part gets a manifest that another one names. It comes from the store if it is there for the same repository: an index may name somebody
// else's.
func (s *Store) part(ctx context.Context, r imageref.Ref, d digest.Digest, sources []*Source) (*manifest, error) {
	if len(sources) > 0 && !s.Has(r, d) {
		return s.ask(ctx, r, d.String(), sources)
	}
	if m, err := s.readManifest(d); err == nil {
		return m, nil
	} else if !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("image %s: %w", r.Familiar(), err)
	}
	if s.depot.own(r) && s.Has(r, d) { // and not by its digest alone: it may be somebody else's
		sources = behind(s, r, sources)
	}
	return s.ask(ctx, r, d.String(), sources)
}

// manifest gets a manifest and keeps it. One asked for by digest comes from the store if it is there for the same repository: whoever has
// heard of the digest of somebody else's image must not get it by a name of his own. A tag is asked for anew each time, and falls back
// to the store.
func (s *Store) manifest(ctx context.Context, r imageref.Ref, identifier string, sources []*Source) (*manifest, error) {
	if d, err := imageref.ParseDigest(identifier); err == nil && s.Has(r, d) {
		return s.part(ctx, r, d, sources)
	}
	return s.ask(ctx, r, identifier, sources)
}

// ask gets a manifest from the sources, and one by tag that they do not have from the store.
func (s *Store) ask(ctx context.Context, ref imageref.Ref, identifier string, sources []*Source) (*manifest, error) {
	sum, derr := imageref.ParseDigest(identifier)
	var failures []error
	var where []string
	for _, src := range sources {
		m, err := src.manifest(ctx, ref, identifier)
		if err == nil {
			m.fetched = true
			if err := s.Cache.makeRoom(int64(len(m.raw))); err != nil {
				return nil, fmt.Errorf("image %s: %w", ref.Familiar(), err)
			}
			if _, err := s.putBlob(m.raw, m.desc.Digest); err != nil {
				return nil, fmt.Errorf("image %s: %w", ref.Familiar(), err)
			}
			return m, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, ErrNotFound) {
			where = append(where, src.where(ref))
			continue
		}
		failures = append(failures, err)
	}
	// Not found everywhere is an answer; an unreachable registry is none, and what the store knows is better. A name that
	// only lives here (built, imported) is found here too. Refused everywhere is final but for what was pushed here.
	denied := len(failures) > 0 && !slices.ContainsFunc(failures, func(err error) bool { return !errors.Is(err, ErrDenied) })
	if derr != nil && (!denied || pushedTo(s, ref)) {
		if local, ok := s.Lookup(ref); ok {
			if m, err := s.readManifest(local); err == nil {
				return m, nil
			} else if s.depot.own(ref) { // the disk has changed it
				return s.part(ctx, ref.Pinned(local), local, sources)
			}
		}
	}
	if err := s.depot.away(ref); err != nil {
		failures = append(failures, err)
	}
	if len(failures) == 0 && derr == nil {
		if err := s.depot.lacking(ref, sum, false); err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		return nil, fmt.Errorf("image %s: %w", ref.Familiar(), errors.Join(failures...))
	}
	if len(where) == 0 {
		where = []string{"this store"}
	}
	return nil, &NotFoundError{Ref: ref.Familiar(), Where: where}
}

// Progress tells how far a pull is. Total is known from the first call on.
type Progress struct {
	Blob        digest.Digest // the one that moved, or empty
	Done, Total int64         // bytes of all blobs
	Copies      string        // of a push: how many of the processes that stand by have it, HAVE/OF; empty: not known
}

// Pull brings an image for one platform into the store, complete and verified, and names it. progress may be nil; its
// calls are sequential. Layers that are here, or on their way for another caller, are not fetched again. After an error,
// what arrived is kept and the next Pull continues.
func (s *Store) Pull(ctx context.Context, ref string, platform Platform, progress func(Progress), sources ...*Source) (Image, error) {
	r, err := imageref.Parse(ref)
	if err != nil {
		return Image{}, err
	}
	res, manifest, err := s.resolve(ctx, r, platform, sources)
	if err != nil {
		return Image{}, err
	}
	pins := []digest.Digest{res.Digest, res.Manifest, manifest.image.Config.Digest}
	for _, l := range manifest.image.Layers {
		pins = append(pins, l.Digest)
	}
	defer s.pin(pins...)()
	// Pinned only now: what Prune took since it was resolved is put back.
	if _, err := s.putBlob(manifest.raw, manifest.desc.Digest); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", r.Familiar(), err)
	}
	if _, here := s.hasBlob(res.Digest); !here {
		if _, err := s.part(ctx, r, res.Digest, sources); err != nil {
			return Image{}, err
		}
	}

	type moved struct {
		d digest.Digest
		n int64
	}
	updates := make(chan moved) // from the fetchers to the loop below, which ends after them
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(pullParallel)
	finished := make(chan error, 1)
	go func() {
		for _, desc := range unique(manifest.children()) {
			g.Go(func() (err error) {
				defer panics.Error(&err)
				err = s.fetchBlob(gctx, r, desc, sources, func(n int64) { updates <- moved{desc.Digest, n} })
				if err != nil {
					return fmt.Errorf("image %s: %w", r.Familiar(), err)
				}
				return nil
			})
		}
		err := g.Wait()
		close(updates)
		finished <- err
	}()
	done, total := map[digest.Digest]int64{}, int64(0)
	for _, desc := range unique(manifest.children()) {
		total += desc.Size
	}
	sum := int64(0)
	if progress != nil {
		progress(Progress{Total: total})
	}
	for u := range updates {
		if u.n != done[u.d] && progress != nil {
			sum += u.n - done[u.d]
			done[u.d] = u.n
			progress(Progress{Blob: u.d, Done: sum, Total: total})
		}
	}
	if err := <-finished; err != nil {
		return Image{}, err
	}
	if err := s.setName(r, res.Digest); err != nil {
		return Image{}, fmt.Errorf("image %s: %w", r.Familiar(), err)
	}
	img, err := s.image(res.Manifest)
	img.Ref, img.Digest = r, res.Digest
	return img, err
}

func unique(ds []ocispec.Descriptor) []ocispec.Descriptor {
	seen := map[digest.Digest]bool{}
	var out []ocispec.Descriptor
	for _, d := range ds {
		if !seen[d.Digest] {
			seen[d.Digest] = true
			out = append(out, d)
		}
	}
	return out
}
