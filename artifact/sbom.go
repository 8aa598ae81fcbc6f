package artifact

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/internal/sbom"
)

// maxSBOMs is how many lists of its contents an image may have, over all its platforms.
const maxSBOMs = 64

// SBOM is a list of what an image contains, as somebody attached it.
type SBOM struct {
	Digest digest.Digest
	Data   []byte
}

// SBOMs gives the lists of an image's contents, which is named by its digest, for all its platforms: those that refer to
// it, those under the tags that cosign uses, and those that BuildKit puts into the index. They come from the store;
// sources are asked for more, which is then kept. Only what lies in the image's own repository counts, so that nobody
// describes another one's image.
func SBOMs(ctx context.Context, s *Store, r Ref, sources ...*Source) ([]SBOM, error) {
	repo := Ref{Registry: r.Registry, Repository: r.Repository}
	m, err := s.manifest(ctx, r, r.Digest.String(), sources)
	if err != nil {
		return nil, err
	}
	subjects := []digest.Digest{r.Digest}
	attached := map[digest.Digest]bool{}
	if m.index != nil {
		for _, d := range m.index.Manifests {
			if d.Annotations["vnd.docker.reference.type"] == "attestation-manifest" {
				attached[d.Digest] = true
			} else {
				subjects = append(subjects, d.Digest)
			}
		}
	}
	for tag, d := range s.namesOf(repo) {
		if about(tag, subjects) {
			attached[d] = true
		} else if a, err := s.readManifest(d); err == nil && slices.Contains(subjects, referrerOf(a).subject) {
			attached[d] = true
		}
	}
	if len(sources) > 0 {
		if err := findSBOMs(ctx, s, repo, subjects, attached, sources); err != nil {
			return nil, err
		}
	}
	var out []SBOM
	for _, d := range slices.Sorted(maps.Keys(attached)) {
		list, err := sbomsIn(ctx, s, repo, d, sources)
		if err != nil {
			return nil, fmt.Errorf("list of the contents of %s: %w", r.Familiar(), err)
		}
		if out = append(out, list...); len(out) > maxSBOMs {
			return nil, fmt.Errorf("%w: %s has more than %d lists of its contents", ErrTooLarge, r.Familiar(), maxSBOMs)
		}
	}
	return out, nil
}

// sbomTags are those under which cosign puts lists and statements about an image.
func sbomTags(d digest.Digest) []string {
	return []string{"sha256-" + d.Encoded() + ".sbom", "sha256-" + d.Encoded() + ".att"}
}

func about(tag string, subjects []digest.Digest) bool {
	return slices.ContainsFunc(subjects, func(d digest.Digest) bool { return slices.Contains(sbomTags(d), tag) })
}

// findSBOMs asks the sources what refers to the subjects, and keeps it.
func findSBOMs(ctx context.Context, s *Store, repo Ref, subjects []digest.Digest, attached map[digest.Digest]bool,
	sources []*Source) error {
	keep := func(at Ref, identifier string) error {
		m, err := s.manifest(ctx, at, identifier, sources)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		attached[m.desc.Digest] = true
		return s.putName(at, name{Digest: m.desc.Digest, Cached: m.fetched})
	}
	for _, d := range subjects {
		list, err := referrersAt(ctx, repo, d, sources)
		if err != nil && !errors.Is(err, ErrNotFound) { // not every registry lists referrers
			return err
		}
		for _, desc := range list {
			if !slices.Contains(sbom.MediaTypes, desc.ArtifactType) || len(attached) > maxSBOMs {
				continue
			}
			if err := keep(repo.pinned(desc.Digest), desc.Digest.String()); err != nil {
				return err
			}
		}
		for _, tag := range sbomTags(d) {
			if err := keep(Ref{Registry: repo.Registry, Repository: repo.Repository, Tag: tag}, tag); err != nil {
				return err
			}
		}
	}
	return nil
}

// sbomsIn reads the lists that a manifest consists of; of another kind of manifest, such as one of signatures, it gives none.
func sbomsIn(ctx context.Context, s *Store, repo Ref, d digest.Digest, sources []*Source) (out []SBOM, err error) {
	m, err := s.manifest(ctx, repo.pinned(d), d.String(), sources)
	if err != nil || m.image == nil {
		return nil, err
	}
	layers := slices.DeleteFunc(slices.Clone(m.image.Layers), func(l ocispec.Descriptor) bool {
		return !slices.Contains(sbom.MediaTypes, l.MediaType)
	})
	defer s.pin(append(digestsOf(layers), d)...)()
	for _, l := range layers {
		if l.Size > sbom.MaxSize || len(out) >= maxSBOMs {
			return nil, fmt.Errorf("%w: %d bytes, or more than %d of them", ErrTooLarge, l.Size, maxSBOMs)
		}
		if len(sources) > 0 {
			if err := s.fetchBlob(ctx, repo, l, sources, nil); err != nil {
				return nil, err
			}
		}
		data, err := readBlobUpTo(s, l.Digest, sbom.MaxSize)
		if err != nil {
			return nil, err
		}
		out = append(out, SBOM{l.Digest, data})
	}
	return out, nil
}
