package tier

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// Pulls is what a child may pull now.
type Pulls struct {
	// State changes with Images; a caller that names it gets no Images while it is the same.
	State string
	// Images are those of what the child was given.
	Images []GivenImage
	// Shared, if not nil, reports whether a repository of the built-in registry belongs to no organisation, and is for
	// the child to read whatever it was given.
	Shared func(repository string) bool
}

// GivenImage is a reference, pinned where its digest is known, and the organisation that runs it; "" is the operator.
type GivenImage struct{ Ref, Org string }

// FindPulls tells what a child may pull. have is the State of what the caller knows.
type FindPulls func(ctx context.Context, child, have string) (Pulls, error)

// DesiredSet is a child's, as reconcile.Source has it.
type DesiredSet interface {
	Incarnation() skerry.Incarnation
	Gen() skerry.Generation
	Keys() []string
	Get(key string) ([]byte, bool)
}

// AssignedImages lists the images of what stands in a child's desired set, whose values unmarshal reads. It is called
// where the set may be read.
func AssignedImages(desired DesiredSet, unmarshal func([]byte, any) error, have string) (p Pulls) {
	if p.State = fmt.Sprintf("%s/%d", desired.Incarnation(), desired.Gen()); p.State == have {
		return p
	}
	seen := map[GivenImage]bool{}
	add := func(ref, org string) {
		if i := (GivenImage{ref, org}); !seen[i] {
			seen[i] = true
			p.Images = append(p.Images, i)
		}
	}
	for _, key := range desired.Keys() {
		value, _ := desired.Get(key)
		var a spec.Assignment
		var o wire.AgentOrder
		var site wire.SiteOrder
		switch {
		case strings.HasPrefix(key, wire.AssignmentKey("")) && unmarshal(value, &a) == nil:
			for _, ref := range a.Spec.Images() {
				if pinned := a.Digest[ref]; pinned != "" {
					ref = pinned
				}
				add(ref, a.Org)
			}
		case key == wire.AgentKey && unmarshal(value, &o) == nil:
			add(o.Image, "")
		case key == wire.SiteUpgradeKey && unmarshal(value, &site) == nil:
			add(site.Image, "")
		}
	}
	return p
}

// LimitPulls holds the children that ask a role's registry to what they were given.
func LimitPulls(r Registry, find FindPulls) {
	if m, ok := r.(*Images); ok {
		m.pulls.Store(&find)
	}
}

// childPulls is what is known of a child.
type childPulls struct {
	state string
	refs  []imageref.Ref
}

// PeerOf names the peer whose stream carries a request; "" is none.
func PeerOf(r *http.Request) string {
	if peer := link.PeerFrom(r.Context()); peer != nil {
		return peer.Name()
	}
	return ""
}

// mayRead decides about one manifest or blob that a child asks for: it must belong to an image that the child was given. A tag is answered
// where nobody knew the digest when the image was assigned.
func (m *Images) mayRead(r *http.Request, repo imageref.Ref, kind, id string) error {
	if child := PeerOf(r); child != "" {
		return m.childMayRead(r.Context(), child, repo, kind, id)
	}
	return nil
}

func (m *Images) childMayRead(ctx context.Context, child string, repo imageref.Ref, kind, id string) error {
	find := m.pulls.Load()
	if find == nil {
		return nil
	}
	m.mu.Lock()
	known := m.children[child]
	m.mu.Unlock()
	now, err := (*find)(ctx, child, known.state)
	if err != nil {
		return err
	}
	if now.State != known.state {
		known = childPulls{state: now.State}
		for _, i := range now.Images {
			ref, err := imageref.Parse(i.Ref)
			if err != nil {
				continue
			}
			if i.Org == "" || m.direct.Guard.Serves(ref.Registry, i.Org) {
				known.refs = append(known.refs, ref)
			}
			if local, ok := imageref.Unnamed(i.Ref, ref); ok {
				known.refs = append(known.refs, local)
			}
		}
		m.mu.Lock()
		m.children[child] = known
		m.mu.Unlock()
	}
	if repo.Registry == imageref.BuiltIn && now.Shared != nil && now.Shared(repo.Repository) {
		return nil
	}
	no := fmt.Errorf("%s of %s is of no image that %s runs now; a child gets what it was given, by digest", id, repo.Name(), child)
	mine := slices.DeleteFunc(slices.Clone(known.refs), func(ref imageref.Ref) bool { return ref.Name() != repo.Name() })
	if kind != "manifests" && kind != "blobs" && kind != "referrers" {
		return no
	}
	for _, ref := range mine {
		if ref.Digest == "" && kind == "manifests" && ref.Tag == id || kind != "referrers" && m.handler.Holds(ctx, ref, id) ||
			m.signs(ctx, ref, kind, id) {
			return nil
		}
	}
	return no
}

// signs reports whether something is of the signatures of an image, or asks for its referrers.
func (m *Images) signs(ctx context.Context, image imageref.Ref, kind, id string) bool {
	d, ok := image.Digest, true
	if d == "" {
		d, ok = m.Store.Lookup(image)
	}
	if !ok {
		return false
	}
	if kind == "referrers" {
		return id == string(d)
	}
	tag := artifact.SignatureTag(d)
	signatures := imageref.Ref{Registry: image.Registry, Repository: image.Repository, Tag: tag}
	_, known := m.Store.Lookup(signatures)
	return kind == "manifests" && id == tag || known && m.handler.Holds(ctx, signatures, id)
}
