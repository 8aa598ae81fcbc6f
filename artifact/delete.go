package artifact

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// Deletion is what somebody wants to delete of a registry.
type Deletion struct {
	Repo imageref.Ref
	// Tags are the tags that go.
	Tags []string
	// Lost is what the repository has no more afterwards, by digest: images, and the parts of those that are an index.
	Lost []digest.Digest
}

// InUseError refuses to delete an image that something uses, and says what that is.
type InUseError struct{ Why string }

func (e *InUseError) Error() string { return e.Why }

// deleteManifest removes a tag, or by digest the image with all its tags, and of an index the parts that nothing else names. What nothing
// needs any more goes at once: it no longer counts for its owner.
func (h *Handler) deleteManifest(w http.ResponseWriter, r *http.Request, repo imageref.Ref, identifier string) error {
	remove := func() error { return h.remove(r.Context(), repo, identifier) }
	var err error
	if h.Delete != nil {
		err = h.Delete(r, h.deletion(repo, identifier), remove)
	} else {
		err = remove()
	}
	if err == nil {
		w.WriteHeader(http.StatusAccepted)
	}
	return err
}

// going lists the names of a repository that go with a tag, or with an image by its digest; parts are those of them that
// an index has.
func (h *Handler) going(repo imageref.Ref, identifier string) (names map[string]digest.Digest, parts []digest.Digest) {
	names = h.Store.namesOf(repo)
	sum, err := imageref.ParseDigest(identifier)
	maps.DeleteFunc(names, func(k string, have digest.Digest) bool {
		return err == nil && have != sum || err != nil && k != identifier
	})
	if err == nil && len(names) > 0 {
		parts = h.childrenOf(repo, sum)
	}
	return names, parts
}

// deletion says what would be deleted.
func (h *Handler) deletion(repo imageref.Ref, identifier string) Deletion {
	names, parts := h.going(repo, identifier)
	what := Deletion{Repo: repo}
	for k := range names {
		if imageref.ValidTag(k) {
			what.Tags = append(what.Tags, k)
		}
	}
	slices.Sort(what.Tags)
	kept := h.Store.namesOf(repo)
	maps.DeleteFunc(kept, func(k string, _ digest.Digest) bool {
		_, goes := names[k]
		return goes || slices.Contains(parts, digest.Digest(k))
	})
	left := map[digest.Digest]bool{}
	for d := range h.Store.under(repo, maps.Values(kept)) {
		left[d.Digest] = true
	}
	for d := range h.Store.under(repo, maps.Values(names)) {
		if !left[d.Digest] {
			what.Lost = append(what.Lost, d.Digest)
		}
	}
	return what
}

func (h *Handler) remove(ctx context.Context, repo imageref.Ref, identifier string) error {
	names, parts := h.going(repo, identifier)
	if len(names) == 0 {
		return failf(http.StatusNotFound, "MANIFEST_UNKNOWN", "%s has no %s", repo.Name(), identifier)
	}
	var gone []digest.Digest
	if _, err := imageref.ParseDigest(identifier); err == nil {
		for c := range h.Store.under(repo, maps.Values(names)) {
			gone = append(gone, c.Digest)
		}
	}
	// Tags first, and of what somebody pushes meanwhile nothing: neither a tag that means another image now, nor an image that has a tag.
	var order []imageref.Ref
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if _, err := imageref.ParseDigest(k); err != nil {
			order = append(order, imageref.Ref{Registry: repo.Registry, Repository: repo.Repository, Tag: k})
		}
	}
	tags := len(order)
	for _, k := range slices.Sorted(maps.Keys(names)) {
		if d, err := imageref.ParseDigest(k); err == nil {
			order = append(order, repo.Pinned(d))
		}
	}
	for _, part := range parts {
		order = append(order, repo.Pinned(part))
	}
	for at, ref := range order {
		may := func() bool {
			now := h.Store.namesOf(repo)
			if at < tags {
				return now[ref.Tag] == names[ref.Tag]
			}
			for k, sum := range now {
				if sum == ref.Digest && imageref.ValidTag(k) {
					return false
				}
			}
			return true
		}
		if err := unpublish(ctx, h.Store, ref, may); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return h.Store.release(gone)
}
