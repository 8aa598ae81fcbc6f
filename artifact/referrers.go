package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// maxSubjects is how many manifests a handler remembers the subjects of.
const maxSubjects = 100_000

// referrer is a manifest as a list of referrers shows it, and what it refers to; "" is nothing.
type referrer struct {
	subject digest.Digest
	desc    ocispec.Descriptor
}

// referrerOf reads what a manifest refers to.
func referrerOf(m *manifest) referrer {
	out := referrer{desc: m.desc}
	var subject *ocispec.Descriptor
	if m.index != nil {
		subject, out.desc.ArtifactType, out.desc.Annotations = m.index.Subject, m.index.ArtifactType, m.index.Annotations
	} else {
		subject, out.desc.ArtifactType, out.desc.Annotations = m.image.Subject, m.image.ArtifactType, m.image.Annotations
		if out.desc.ArtifactType == "" {
			out.desc.ArtifactType = m.image.Config.MediaType
		}
	}
	if subject != nil {
		out.subject = subject.Digest
	}
	return out
}

// referrersHere lists what was pushed to a repository, or is kept of it, and refers to a manifest.
func (h *Handler) referrersHere(repo imageref.Ref, d digest.Digest) (out []ocispec.Descriptor) {
	seen := map[digest.Digest]bool{}
	for _, have := range h.Store.namesOf(repo) {
		if seen[have] {
			continue
		}
		seen[have] = true
		if r := h.referrer(have); r.subject == d {
			out = append(out, r.desc)
		}
	}
	return out
}

// referrer reads a manifest once.
func (h *Handler) referrer(d digest.Digest) referrer {
	h.mu.Lock()
	r, known := h.referrers[d]
	h.mu.Unlock()
	if known {
		return r
	}
	m, err := h.Store.readManifest(d)
	if err != nil {
		return referrer{} // it may come yet
	}
	r = referrerOf(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.referrers == nil || len(h.referrers) >= maxSubjects {
		h.referrers = map[digest.Digest]referrer{}
	}
	h.referrers[d] = r
	return r
}

// getReferrers answers what refers to a manifest: here, and at the sources that have the repository. Where those do not
// list referrers, neither does this, so that clients look for the tag that stands in for the list.
func (h *Handler) getReferrers(w http.ResponseWriter, r *http.Request, repo imageref.Ref, id string) error {
	sum, err := imageref.ParseDigest(id)
	if err != nil {
		return failf(http.StatusBadRequest, "DIGEST_INVALID", "%v", err)
	}
	list := h.referrersHere(repo, sum)
	if sources := h.sources(repo); len(sources) > 0 {
		more, err := referrersAt(r.Context(), repo, sum, sources)
		if err != nil && len(list) == 0 {
			return unknown(err, "MANIFEST_UNKNOWN")
		}
		list = append(list, more...)
	}
	byDigest := map[digest.Digest]ocispec.Descriptor{}
	kind := r.URL.Query().Get("artifactType")
	for _, desc := range list {
		if kind == "" || desc.ArtifactType == kind {
			byDigest[desc.Digest] = desc
		}
	}
	out := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{}}
	for _, sum := range slices.Sorted(maps.Keys(byDigest)) {
		if len(out.Manifests) < maxIndex {
			out.Manifests = append(out.Manifests, byDigest[sum])
		}
	}
	raw := mustJSON(out)
	w.Header().Set("Content-Type", ocispec.MediaTypeImageIndex)
	if kind != "" {
		w.Header().Set("OCI-Filters-Applied", "artifactType")
	}
	if r.Method != http.MethodHead {
		_, _ = w.Write(raw)
	}
	return nil
}

// referrersAt asks the sources in order.
func referrersAt(ctx context.Context, repo imageref.Ref, d digest.Digest, sources []*Source) ([]ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	var errs []error
	for _, src := range sources {
		list, err := src.referrers(ctx, repo, d)
		if err == nil {
			return list, nil
		}
		errs = append(errs, err)
	}
	if slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, ErrNotFound) }) {
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrNotFound) })
	}
	return nil, errors.Join(errs...)
}

// referrers asks a registry, page by page.
func (s *Source) referrers(ctx context.Context, repo imageref.Ref, d digest.Digest) (out []ocispec.Descriptor, err error) {
	at := s.url(repo, "referrers/"+d.String(), nil)
	for at != "" && len(out) < maxIndex {
		if at, err = s.referrersPage(ctx, repo, at, &out); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Source) referrersPage(ctx context.Context, repo imageref.Ref, at string, out *[]ocispec.Descriptor) (next string, err error) {
	res, err := s.do(ctx, repo, httpRequest{method: http.MethodGet, url: at, header: http.Header{"Accept": {ocispec.MediaTypeImageIndex}}})
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxManifest+1))
	if err != nil {
		return "", err
	}
	m, err := parseManifest(raw)
	if err != nil {
		return "", err
	}
	if m.index == nil {
		return "", fmt.Errorf("%w: the referrers that %s lists are no index", ErrInvalid, s.where(repo))
	}
	if len(m.index.Manifests) == 0 {
		return "", nil // whatever it says of a next page
	}
	*out = append(*out, m.index.Manifests...)
	link, rel, _ := strings.Cut(res.Header.Get("Link"), ">")
	if link, ok := strings.CutPrefix(strings.TrimSpace(link), "<"); ok && strings.Contains(rel, "next") {
		u, err := res.Request.URL.Parse(link)
		if err != nil || u.Host != res.Request.URL.Host {
			return "", fmt.Errorf("%w: %s has its next referrers elsewhere", ErrInvalid, s.where(repo))
		}
		return u.String(), nil
	}
	return "", nil
}
