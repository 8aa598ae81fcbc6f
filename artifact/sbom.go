package artifact

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/sbom"
)

// maxSBOMs is how many lists of its contents an image may have, over all its platforms.
const maxSBOMs = 64

// maxSBOMBytes bounds all lists of an image together.
const maxSBOMBytes = 128 << 20

// SBOM is a list of what an image contains, as somebody attached it. It may be large, and is read when somebody wants it.
type SBOM struct {
	Digest    digest.Digest
	MediaType string
	store     *Store
}

// Read gives the list.
func (b *SBOM) Read() ([]byte, error) { return readBlobUpTo(b.store, b.Digest, sbom.MaxSize) }

// SBOMs gives the lists of an image's contents, which is named by its digest, for all its platforms: those that refer to
// it, those under the tags that cosign uses, and those that BuildKit puts into the index. They come from the store;
// sources are asked for more, which is then kept. Only what lies in the image's own repository counts, so that nobody
// describes another one's image. missing are the platforms of which there is none, if there are any of others.
func SBOMs(ctx context.Context, store *Store, ref imageref.Ref, sources ...*Source) (out []SBOM, missing []string, err error) {
	repo := imageref.Ref{Registry: ref.Registry, Repository: ref.Repository}
	manifest, err := store.manifest(ctx, ref, ref.Digest.String(), sources)
	if err != nil {
		return nil, nil, err
	}
	subjects := []digest.Digest{ref.Digest}
	attached := attachments{}
	if manifest.index != nil {
		for _, d := range manifest.index.Manifests {
			if d.Annotations["vnd.docker.reference.type"] == "attestation-manifest" {
				attached.add(d.Digest, digest.Digest(d.Annotations["vnd.docker.reference.digest"]))
			} else {
				subjects = append(subjects, d.Digest)
			}
		}
	}
	for tag, d := range store.namesOf(repo) {
		if of := about(tag, subjects); of != "" {
			attached.add(d, of)
		} else if a, err := store.readManifest(d); err == nil && slices.Contains(subjects, referrerOf(a).subject) {
			attached.add(d, referrerOf(a).subject)
		}
	}
	if len(sources) > 0 {
		if err := findSBOMs(ctx, store, repo, subjects, attached, sources); err != nil {
			return nil, nil, err
		}
	}
	covered, total := map[digest.Digest]bool{}, int64(0)
	for _, d := range slices.Sorted(maps.Keys(attached)) {
		list, size, err := sbomsIn(ctx, store, repo, d, sources)
		if err != nil {
			return nil, nil, fmt.Errorf("list of the contents of %s: %w", ref.Familiar(), err)
		}
		total += size
		if out = append(out, list...); len(out) > maxSBOMs || total > maxSBOMBytes {
			return nil, nil, fmt.Errorf("%w: %s has more than %d lists of its contents, or %d MiB of them", ErrTooLarge, ref.Familiar(), maxSBOMs,
				maxSBOMBytes>>20)
		}
		for _, of := range attached[d] {
			covered[of] = covered[of] || len(list) > 0
		}
	}
	if manifest.index != nil && len(out) > 0 && !covered[ref.Digest] && !covered[""] {
		for _, d := range manifest.index.Manifests {
			if slices.Contains(subjects, d.Digest) && !covered[d.Digest] && d.Platform != nil {
				missing = append(missing, d.Platform.OS+"/"+d.Platform.Architecture)
			}
		}
	}
	return out, missing, nil
}

// attachments are manifests with lists, and what each is about; "": that is not said.
type attachments map[digest.Digest][]digest.Digest

func (a attachments) add(d, subject digest.Digest) {
	if !slices.Contains(a[d], subject) {
		a[d] = append(a[d], subject)
	}
}

// sbomTags are those under which cosign puts lists and statements about an image.
func sbomTags(d digest.Digest) []string {
	return []string{tagOf(d) + ".sbom", tagOf(d) + ".att"}
}

// about gives the subject that a tag of cosign names, or "".
func about(tag string, subjects []digest.Digest) digest.Digest {
	for _, d := range subjects {
		if slices.Contains(sbomTags(d), tag) {
			return d
		}
	}
	return ""
}

// findSBOMs asks the sources what refers to the subjects, and keeps it.
func findSBOMs(ctx context.Context, store *Store, repo imageref.Ref, subjects []digest.Digest, attached attachments,
	sources []*Source) error {
	keep := func(at imageref.Ref, identifier string, of digest.Digest) error {
		m, err := store.manifest(ctx, at, identifier, sources)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		attached.add(m.desc.Digest, of)
		return store.putName(at, name{Digest: m.desc.Digest, Cached: m.fetched})
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
			if err := keep(repo.Pinned(desc.Digest), desc.Digest.String(), d); err != nil {
				return err
			}
		}
		for _, tag := range sbomTags(d) {
			if err := keep(imageref.Ref{Registry: repo.Registry, Repository: repo.Repository, Tag: tag}, tag, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// sbomsIn reads the lists that a manifest consists of; of another kind of manifest, such as one of signatures, it gives none.
func sbomsIn(ctx context.Context, store *Store, repo imageref.Ref, sum digest.Digest, sources []*Source) (out []SBOM, size int64,
	err error) {
	manifest, err := store.manifest(ctx, repo.Pinned(sum), sum.String(), sources)
	if err != nil || manifest.image == nil {
		return nil, 0, err
	}
	layers := slices.DeleteFunc(slices.Clone(manifest.image.Layers), func(l ocispec.Descriptor) bool {
		return !slices.Contains(sbom.MediaTypes, l.MediaType)
	})
	defer store.pin(append(digestsOf(layers), sum)...)()
	for _, l := range layers {
		if l.Size > sbom.MaxSize || len(out) >= maxSBOMs {
			return nil, 0, fmt.Errorf("%w: %d bytes, or more than %d of them", ErrTooLarge, l.Size, maxSBOMs)
		}
		if len(sources) > 0 {
			if err := store.fetchBlob(ctx, repo, l, sources, nil); err != nil {
				return nil, 0, err
			}
		}
		size += l.Size
		out = append(out, SBOM{l.Digest, l.MediaType, store})
	}
	return out, size, nil
}
