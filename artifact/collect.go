package artifact

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// pushGrace is how long what a client pushed, pulled or asked for stays whatever the limits say: it may be about to name it.
const pushGrace = time.Hour

// Limits bound what a registry keeps of its own images. The zero value keeps all.
type Limits struct {
	// Untagged is how long an image that no tag names stays after its last use; 0 is for ever.
	Untagged time.Duration
	// Space is how many bytes the images may take together. Above it images go that nothing uses: those without a tag first, then those
	// that were not used for longest. 0 is no bound.
	Space int64
}

// ownImage is an image of the registry's own in one repository, with all its names.
type ownImage struct {
	repo    imageref.Ref
	sum     digest.Digest
	keys    []string  // in the list of names
	tagged  bool      // by a tag that says nothing about another image
	used    time.Time // last, or when it was pushed
	inUse   bool
	gone    bool
	blobs   []digest.Digest // it leads to, itself among them
	leaders []*ownImage     // images that it is a part of, or says something about: it goes with the last of them
	follow  []*ownImage     // the other way round
}

// Collect removes the registry's own images that are beyond the limits, then what no name needs and no upload of the last day brought.
// inUse are the digests that something runs from or could go back to.
//
// Names go first, on the disk too: a crash leaves content without a name, which the next Collect removes, and no name without content.
func (h *Handler) Collect(ctx context.Context, limits Limits, inUse map[digest.Digest]bool) (Pruned, error) {
	store := h.Store
	if store.depot != nil { // before manifests go here, which say what is needed there
		err := SettleDepot(ctx, store)
		if err == nil {
			err = store.depot.sweepOld(ctx)
		}
		if err != nil {
			return Pruned{}, err
		}
	}
	out, err := h.collectImages(ctx, limits, inUse)
	if err != nil {
		return out, err
	}
	rest, err := h.Store.Prune(slices.Collect(maps.Keys(inUse)), h.Store.o.Now().Add(-unnamed), nil)
	out.Blobs, out.Layers, out.Bytes = out.Blobs+rest.Blobs, out.Layers+rest.Layers, out.Bytes+rest.Bytes
	return out, err
}

func (h *Handler) collectImages(ctx context.Context, limits Limits, inUse map[digest.Digest]bool) (Pruned, error) {
	h.Store.mu.Lock()
	out, names, blobs, err := h.collectNamesLocked(limits, inUse)
	if err == nil && h.Store.depot == nil {
		err = h.removeLocked(ctx, blobs, &out)
	}
	h.Store.mu.Unlock()
	if err == nil && len(names) > 0 && h.Store.depot != nil {
		err = h.Store.depot.collected(ctx, names, blobs)
		if err == nil && h.Store.depot.ledger != nil {
			h.Store.mu.Lock()
			defer h.Store.mu.Unlock()
			err = h.removeLocked(ctx, blobs, &out)
		}
	}
	return out, err
}

// collectNamesLocked removes names beyond the limits, and gives what they meant, and the blobs that they led to.
func (h *Handler) collectNamesLocked(limits Limits, inUse map[digest.Digest]bool) (out Pruned, names map[string]name,
	blobs []digest.Digest, err error) {
	store := h.Store
	now := store.o.Now()
	for d, at := range store.asked {
		if now.Sub(at) > pushGrace {
			delete(store.asked, d)
		}
	}
	images := h.ownImagesLocked(inUse)
	h.usedAheadLocked(images, now)
	removed := beyond(images, limits, now, func(d digest.Digest) int64 {
		n, _ := storedLocked(store, d)
		return slots(n)
	}, store.asked)
	if len(removed) == 0 {
		return out, nil, nil, nil
	}
	before := maps.Clone(store.names)
	names = map[string]name{}
	for _, i := range removed {
		blobs = append(blobs, i.blobs...)
		for _, k := range i.keys {
			names[k] = store.names[k]
			delete(store.names, k)
			out.Names = append(out.Names, k)
		}
	}
	slices.Sort(out.Names)
	store.changes++
	// As in Prune: on a full disk, content goes first.
	if err := store.saveNamesLocked(); errors.Is(err, ErrFull) {
		store.dirty = true
	} else if err != nil {
		store.names = before
		return Pruned{}, nil, nil, err
	}
	return out, names, blobs, nil
}

// removeLocked removes those of some blobs that nothing needs any more, and counts them.
func (h *Handler) removeLocked(ctx context.Context, blobs []digest.Digest, out *Pruned) error {
	s := h.Store
	live, _, err := s.liveLocked(ctx, nil)
	if err != nil {
		return err
	}
	for _, d := range blobs {
		n, here := s.hasBlob(d)
		if live[d] || !here {
			continue
		}
		if err := s.proofs.removeBlob(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		out.Blobs++
		out.Bytes += n
	}
	return nil
}

// ownImagesLocked lists the registry's own images, with what belongs together.
func (h *Handler) ownImagesLocked(inUse map[digest.Digest]bool) (out []*ownImage) {
	type place struct {
		repo string
		sum  digest.Digest
	}
	store := h.Store
	images := map[place]*ownImage{}
	about := map[place][]string{} // tags that say something about another image, such as its signature
	for _, k := range slices.Sorted(maps.Keys(store.names)) {
		n := store.names[k]
		ref, err := imageref.Parse(k)
		if err != nil || ref.Registry != h.Registry || !n.Pushed && len(h.UpstreamLocal) > 0 {
			continue
		}
		at := place{ref.Repository, n.Digest}
		i := images[at]
		if i == nil {
			i = &ownImage{repo: imageref.Ref{Registry: ref.Registry, Repository: ref.Repository}, sum: n.Digest}
			images[at] = i
			out = append(out, i)
			for desc := range store.under(i.repo, slices.Values([]digest.Digest{n.Digest})) {
				i.blobs = append(i.blobs, desc.Digest)
				i.inUse = i.inUse || inUse[desc.Digest]
			}
		}
		i.keys = append(i.keys, k)
		for _, t := range []time.Time{n.Added, n.LastUsed} {
			if t.After(i.used) {
				i.used = t
			}
		}
		switch {
		case ref.Digest != "":
		case isAbout(ref.Tag):
			about[at] = append(about[at], ref.Tag)
		default:
			i.tagged = true
		}
	}
	tags := map[string]*ownImage{}
	for _, i := range out {
		tags[i.repo.Repository+":"+tagOf(i.sum)] = i
	}
	lead := func(leader, follower *ownImage) {
		if leader != nil && follower != nil && leader != follower && !slices.Contains(follower.leaders, leader) {
			leader.follow, follower.leaders = append(leader.follow, follower), append(follower.leaders, leader)
		}
	}
	for _, i := range out {
		m, err := store.readManifest(i.sum)
		if err != nil {
			continue
		}
		lead(images[place{i.repo.Repository, referrerOf(m).subject}], i)
		for _, tag := range about[place{i.repo.Repository, i.sum}] {
			subject := tags[i.repo.Repository+":"+strings.SplitN(tag, ".", 2)[0]]
			lead(subject, i)
			i.tagged = i.tagged || subject == nil || subject == i // as any tag: it may be about an image of another registry
		}
		if m.index != nil {
			for _, c := range m.index.Manifests {
				lead(i, images[place{i.repo.Repository, c.Digest}])
			}
		}
	}
	breakRings(out)
	return out
}

// breakRings gives each ring of images that lead one another a beginning: one of them leads, and is led by none.
func breakRings(images []*ownImage) {
	reached := map[*ownImage]bool{}
	var reach func(i *ownImage)
	reach = func(i *ownImage) {
		if !reached[i] {
			reached[i] = true
			for _, f := range i.follow {
				reach(f)
			}
		}
	}
	for _, i := range images {
		if len(i.leaders) == 0 {
			reach(i)
		}
	}
	for _, i := range images {
		if !reached[i] {
			i.leaders = nil
			reach(i)
		}
	}
}

// usedAheadLocked takes images whose last use lies ahead, because the clock was wrong then or is now, for used when that is first seen. It
// is not noted with their names: if the clock is wrong now, they would look old once it is right.
func (h *Handler) usedAheadLocked(images []*ownImage, now time.Time) {
	before := h.ahead
	h.ahead = map[digest.Digest]time.Time{}
	for _, i := range images {
		if !i.used.After(now) {
			continue
		}
		seen, known := before[i.sum]
		if !known || seen.After(now) {
			seen = now
		}
		h.ahead[i.sum], i.used = seen, seen
	}
}

// isAbout reports whether a tag is one of those that begin with tagOf.
func isAbout(tag string) bool {
	algorithm, rest, _ := strings.Cut(tag, "-")
	hex, _, _ := strings.Cut(rest, ".")
	return slices.Contains(imageref.Algorithms(), digest.Algorithm(algorithm)) && len(hex) == 64 &&
		strings.Trim(hex, "0123456789abcdef") == ""
}

// spared reports whether an image stays whatever the limits say, because of itself or of what would go with it.
func (i *ownImage) spared(now time.Time, asked map[digest.Digest]time.Time) bool {
	if i.inUse || now.Sub(i.used) <= pushGrace || slices.ContainsFunc(i.blobs, func(d digest.Digest) bool { return !asked[d].IsZero() }) {
		return true
	}
	return slices.ContainsFunc(i.follow, func(f *ownImage) bool { return len(f.leaders) == 1 && !f.tagged && f.spared(now, asked) })
}

// beyond gives the images that go.
func beyond(images []*ownImage, limits Limits, now time.Time, size func(digest.Digest) int64,
	asked map[digest.Digest]time.Time) (removed []*ownImage) {
	refs, total := map[digest.Digest]int{}, int64(0)
	for _, i := range images {
		total += slot * int64(len(i.keys))
		for _, d := range i.blobs {
			if refs[d]++; refs[d] == 1 {
				total += size(d)
			}
		}
	}
	var remove func(i *ownImage)
	remove = func(i *ownImage) {
		i.gone = true
		removed = append(removed, i)
		total -= slot * int64(len(i.keys))
		for _, d := range i.blobs {
			if refs[d]--; refs[d] == 0 {
				total -= size(d)
			}
		}
		for _, f := range i.follow {
			if !f.gone && !f.tagged && !f.spared(now, asked) && !slices.ContainsFunc(f.leaders, func(l *ownImage) bool { return !l.gone }) {
				remove(f)
			}
		}
	}
	var may []*ownImage
	for _, i := range images {
		if len(i.leaders) == 0 && !i.spared(now, asked) {
			may = append(may, i)
		}
	}
	rank := func(i *ownImage) int {
		if i.tagged {
			return 1
		}
		return 0
	}
	slices.SortFunc(may, func(a, b *ownImage) int {
		return cmp.Or(rank(a)-rank(b), a.used.Compare(b.used), strings.Compare(a.keys[0], b.keys[0]))
	})
	for _, i := range may {
		old := limits.Untagged > 0 && !i.tagged && now.Sub(i.used) > limits.Untagged
		if !i.gone && (old || limits.Space > 0 && total > limits.Space) {
			remove(i)
		}
	}
	return removed
}
