package artifact

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// Share is the part of a registry that the pushes of one owner may take. Each blob that the owner's names, unfinished pushes and running
// uploads lead to counts once, whatever others have of it: what they push or delete changes nothing for this owner, and tells it nothing.
type Share struct {
	Owner      string   // such as an organisation; "" has no bound
	Namespaces []string // first parts of repositories, all that are the owner's
	Bytes      int64    // 0 is no bound
	Hint       string   // how to get more room; ends the refusal
}

// slot is the least that a thing on a disk counts for: a blob counts for a whole number of slots, and a name for one.
const slot = 4 << 10

func slots(n int64) int64 { return (n + slot - 1) / slot * slot }

// account is what an owner has. A sum of what is stored takes a look at every manifest, so that it is made when something changed.
type account struct {
	settle sync.Mutex // held while something is added for good; before Handler.mu and Store.mu

	// Guarded by Handler.mu.
	known   bool
	changes uint64 // of the store, when stored was summed
	stored  int64
	coming  int64 // what running uploads have received
	ended   int64 // what committed uploads had received, ever: a sum from before lacks it
}

// shareOf gives the share of a repository's owner; without an owner it has no bound.
func (h *Handler) shareOf(ctx context.Context, repo imageref.Ref) (Share, error) {
	namespace, _, nested := strings.Cut(repo.Repository, "/")
	if h.Share == nil || !nested {
		return Share{}, nil
	}
	return h.Share(ctx, namespace)
}

// bounded reports whether the owner has a limit.
func (s Share) bounded() bool { return s.Owner != "" && s.Bytes > 0 }

func (h *Handler) account(owner string) *account {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.accounts == nil {
		h.accounts = map[string]*account{}
	}
	if h.accounts[owner] == nil {
		h.accounts[owner] = &account{}
	}
	return h.accounts[owner]
}

// Pushed is how many bytes what was pushed to some namespaces counts for.
func (h *Handler) Pushed(namespaces ...string) int64 {
	store := h.Store
	tops := map[imageref.Ref][]digest.Digest{} // by repository
	var sum int64
	own := func(name string) bool {
		rest, local := strings.CutPrefix(name, h.Registry+"/")
		namespace, _, nested := strings.Cut(rest, "/")
		return local && nested && slices.Contains(namespaces, namespace)
	}
	all := map[digest.Digest]bool{}
	store.mu.Lock()
	for k, n := range store.names {
		// Of a registry without another behind it everything was pushed, by versions too that did not note it.
		if (n.Pushed || len(h.UpstreamLocal) == 0) && own(k) {
			repo := repoOf(k)
			tops[repo] = append(tops[repo], n.Digest)
			sum += slot
		}
	}
	for repo, g := range store.grants {
		if own(repo + ":") {
			for d := range g {
				all[d] = true
			}
		}
	}
	store.mu.Unlock()
	for repo, sums := range tops {
		for d := range store.under(repo, slices.Values(sums)) {
			all[d.Digest] = true
		}
	}
	for d := range all {
		n, _ := stored(store, d)
		sum += slots(n)
	}
	return sum
}

// Uploads is how many uploads of an owner are running.
func (h *Handler) Uploads(owner string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, up := range h.uploads {
		if up.owner == owner {
			n++
		}
	}
	return n
}

// used gives what an owner has stored, and the state of ended from before.
func (h *Handler) used(a *account, share Share) (stored, ended int64) {
	h.Store.mu.Lock()
	changes := h.Store.changes
	h.Store.mu.Unlock()
	h.mu.Lock()
	ended = a.ended
	if a.known && a.changes == changes {
		defer h.mu.Unlock()
		return a.stored, ended
	}
	h.mu.Unlock()
	stored = h.Pushed(share.Namespaces...)
	h.mu.Lock()
	defer h.mu.Unlock()
	a.known, a.changes, a.stored = true, changes, stored
	return stored, ended
}

// over is the refusal. Clients show it, and do not try again.
func (s Share) over(used, more int64) error {
	hint := s.Hint
	if hint != "" {
		hint = "; " + hint
	}
	return failf(http.StatusForbidden, "DENIED", "%s may have %d bytes in this registry: %d are used and this takes at least %d more%s",
		s.Owner, s.Bytes, used, more, hint)
}

// minNames is how many names an owner may have while there are any left.
const minNames = 1000

// roomForName refuses an owner's next name in a depot where it has as many as are left for all others.
func (h *Handler) roomForName(repo imageref.Ref, share Share) error {
	kept := h.Store.depot
	if !kept.own(repo) {
		return nil
	}
	namespaces := share.Namespaces
	if share.Owner == "" {
		namespaces = []string{strings.TrimPrefix(owner(repo, share), "/")}
	}
	h.Store.mu.Lock()
	defer h.Store.mu.Unlock()
	free := max(kept.mostNames-len(h.Store.names), kept.leastNames)
	if len(h.Store.names) < free { // nobody can have as many
		return nil
	}
	n := 0
	for k, name := range h.Store.names {
		rest, own := strings.CutPrefix(k, h.Registry+"/")
		namespace := rest[:max(0, strings.IndexAny(rest, "/:@"))]
		if own && name.Pushed && slices.Contains(namespaces, namespace) {
			n++
		}
	}
	if n < free {
		return nil
	}
	hint := share.Hint
	if hint == "" {
		hint = "delete images with `skerry delete image NAME`"
	}
	return failf(http.StatusForbidden, "DENIED", "%s has %d tags and digests in this registry, and the %d that are left are for others; %s",
		strings.TrimPrefix(owner(repo, share), "/"), n, max(kept.mostNames-len(h.Store.names), 0), hint)
}

// settle adds something to what is stored for an owner. add gives a function that takes it back, which is done if it is too much.
func (h *Handler) settle(share Share, more int64, add func() (undo func(), err error)) error {
	if !share.bounded() {
		_, err := add()
		return err
	}
	a := h.account(share.Owner)
	a.settle.Lock()
	defer a.settle.Unlock()
	before, _ := h.used(a, share)
	undo, err := add()
	if err != nil {
		return err
	}
	if now, _ := h.used(a, share); now > share.Bytes && now > before {
		undo()
		return share.over(before, max(more, now-before))
	}
	return nil
}

// shareWriter writes what an upload receives as far as its owner has room.
type shareWriter struct {
	h             *Handler
	up            *upload
	a             *account
	stored, ended int64 // when this piece began
}

func (h *Handler) shareWriter(up *upload) io.Writer {
	if !up.share.bounded() {
		return up.w
	}
	a := h.account(up.share.Owner)
	w := &shareWriter{h: h, up: up, a: a}
	w.stored, w.ended = h.used(a, up.share)
	return w
}

// fits charges an owner for bytes that are about to be written, or refuses them.
func (w *shareWriter) fits(n int64, charge bool) error {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	used := w.stored + w.a.ended - w.ended + w.a.coming
	if used+n > w.up.share.Bytes {
		return w.up.share.over(used, n)
	}
	if charge {
		w.a.coming += n
		w.up.charged += n
	}
	return nil
}

func (w *shareWriter) Write(b []byte) (int, error) {
	if err := w.fits(int64(len(b)), true); err != nil {
		return 0, err
	}
	return w.up.w.Write(b)
}

// discharge gives back what an upload was charged for, once it is stored or thrown away. Handler.mu is held.
func (h *Handler) dischargeLocked(up *upload, committed bool) {
	a := h.accounts[up.share.Owner]
	if a == nil || up.charged == 0 {
		return
	}
	a.coming -= up.charged
	if committed {
		a.ended += up.charged
	}
	up.charged = 0
}

// release removes those of some blobs that nothing needs any more.
func (s *Store) release(blobs []digest.Digest) error {
	if s.depot != nil {
		// What stays is found by Collect. Before those of the disk: among them are manifests, which say what is needed.
		_ = s.depot.sweep(context.Background(), blobs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	live, _, _ := s.liveLocked(context.Background(), nil)
	var errs []error
	for _, d := range blobs {
		if live[d] {
			continue
		}
		if err := s.proofs.removeBlob(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	s.changes++
	return errors.Join(errs...)
}

// liveLocked finds the blobs and the unpacked layers that names, running calls, unfinished pushes and some digests need. It reads every
// manifest, and gives up when ctx ends.
func (s *Store) liveLocked(ctx context.Context, kept map[digest.Digest]bool) (live map[digest.Digest]bool, layers map[string]bool,
	err error) {
	live, layers = map[digest.Digest]bool{}, map[string]bool{}
	far := false
	for _, n := range s.names {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		far = reach(s, n.Digest, live, layers) || far
	}
	for d := range kept {
		reach(s, d, live, layers)
	}
	for d := range s.pins {
		reach(s, d, live, layers)
		layers[layerID(d)] = true
	}
	for _, g := range s.grants { // uploaded, but not named yet
		for d := range g {
			live[d] = true
		}
	}
	if !far {
		return live, layers, nil
	}
	for k, n := range s.names {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		for d := range s.under(repoOf(k), slices.Values([]digest.Digest{n.Digest})) {
			live[d.Digest] = true
		}
	}
	return live, layers, nil
}

// reach adds a blob, with the blobs and the unpacked layers that it leads to, but for layers that lie elsewhere: far says that there are
// such ones, and it depends on the repository whether they are needed here.
func reach(store *Store, sum digest.Digest, live map[digest.Digest]bool, layers map[string]bool) (far bool) {
	if live[sum] {
		return false
	}
	live[sum] = true
	manifest, err := store.readManifest(sum)
	if err != nil {
		return false // a layer or config, or not here
	}
	for _, c := range manifest.children() {
		switch {
		case manifest.index != nil:
			far = reach(store, c.Digest, live, layers) || far
		case elsewhere(c):
			far = true
		default:
			live[c.Digest] = true
		}
	}
	if manifest.image == nil {
		return far
	}
	raw, err := store.readBlob(manifest.image.Config.Digest)
	if err != nil {
		return far
	}
	if c, err := parseConfig(raw, len(manifest.image.Layers)); err == nil {
		for _, id := range c.RootFS.DiffIDs {
			layers[layerID(id)] = true
		}
	}
	return far
}

// How often a registry that is pushed to looks for what nobody finished, and how old that is then.
const (
	tidyEvery = time.Hour
	unnamed   = 24 * time.Hour
)

// Clear removes what was uploaded to the repositories of a namespace and never named. It returns the name of an image
// that is left there, or "".
func (h *Handler) Clear(namespace string) (image string, err error) {
	s := h.Store
	below := h.Registry + "/" + namespace + "/"
	var blobs []digest.Digest
	s.mu.Lock()
	for repo, g := range s.grants {
		if strings.HasPrefix(repo, below) {
			blobs = slices.AppendSeq(blobs, maps.Keys(g))
			delete(s.grants, repo)
		}
	}
	for k, n := range s.names {
		if rest, ok := strings.CutPrefix(k, h.Registry+"/"); ok && (n.Pushed || len(h.UpstreamLocal) == 0) && strings.HasPrefix(k, below) &&
			(image == "" || rest < image) {
			image = rest
		}
	}
	s.mu.Unlock()
	return image, s.release(blobs)
}

// tidy removes what was uploaded and never named, before others are let in.
func (h *Handler) tidy() {
	h.mu.Lock()
	now := h.Store.o.Now()
	due := now.Sub(h.tidied) >= tidyEvery
	if due {
		h.tidied = now
	}
	h.mu.Unlock()
	if due {
		// A disk that refuses it refuses the upload as well, which says so.
		_, _ = h.Store.Prune(nil, now.Add(-unnamed), nil)
	}
}

// childrenOf lists the manifests of an index that are named by digest in a repository, and that nothing else of it refers to.
func (h *Handler) childrenOf(repo imageref.Ref, sum digest.Digest) (out []digest.Digest) {
	manifest, err := h.Store.readManifest(sum)
	if err != nil || manifest.index == nil {
		return nil
	}
	names := h.Store.namesOf(repo)
	used := map[digest.Digest]bool{}
	for k, top := range names {
		if k != top.String() { // a tag
			used[top] = true
		}
		if other, err := h.Store.readManifest(top); err == nil && other.index != nil && top != sum {
			for _, c := range other.children() {
				used[c.Digest] = true
			}
		}
	}
	have := slices.Collect(maps.Values(names))
	for _, c := range manifest.children() {
		if !used[c.Digest] && slices.Contains(have, c.Digest) {
			out = append(out, c.Digest)
		}
	}
	return out
}
