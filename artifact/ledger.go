package artifact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/time/rate"

	"skerry.dev/skerry/artifact/imageref"
)

// Ledger has the names of a registry's own images where all processes of its role find them, such as in the role's store. What they lead to
// is on the disk of the process that serves the registry, and copied to those that stand by: whoever serves it next has the names, and
// knows what is missing.
//
//	a push:      blobs and manifest come to the disk, names go to the ledger, and each is acknowledged when it is there
//	a deletion:  names go from the ledger, then blobs that no name needs from the disk, and from that of each standby
type Ledger struct {
	Names Depot
	// Life is that of the store that the names lie in. What an earlier life had, or none, is entered again: a store that was restored from a
	// backup knows nothing of the images since.
	Life string
	// Others asks other processes of the role for what is not on this disk: blobs, and manifests by their digests.
	Others http.RoundTripper
	Limit  *rate.Limiter // of what comes from there; nil: none
	// Follows says that another process changes the names, and this one stands by.
	Follows bool
}

// The names of a ledger are in one store with everything else of a role, which whoever may push must not fill.
const (
	maxLedgerNames = 100_000
	maxLedgerName  = 4 << 10 // bytes
)

// recordLister is a Depot of names that gives all of them as they are at one moment: read one by one, those of a store that is exchanged
// meanwhile would count as deleted.
type recordLister interface {
	ListRecords(ctx context.Context, prefix string, each func(name string, value []byte) error) error
}

func newLedger(s *Store, l *Ledger) *depot {
	d := newDepot(s, l.Names)
	d.complete, d.mostNames, d.mostName = map[repoImage]bool{}, maxLedgerNames, maxLedgerName
	d.ledger, d.source = l, &Source{BaseURL: "http://standby", Transport: l.Others, Limit: l.Limit}
	return d
}

// loadLedger takes the names over. Those that were pushed here and that this ledger has never had are entered, a tag that it has if that
// was pushed here later, where the ledger did not count.
func (d *depot) loadLedger(ctx context.Context) error {
	store := d.s
	names, sent, err := d.readNames(ctx)
	if err != nil {
		return err
	}
	store.mu.Lock()
	mine := maps.Clone(store.names)
	store.mu.Unlock()
	for k, n := range mine {
		ref, err := imageref.Parse(k)
		there, named := names[k]
		if err != nil || !n.Pushed || n.Life == d.ledger.Life || !d.own(ref) || d.ledger.Follows ||
			named && (there.Digest == n.Digest || !n.Added.After(there.Added)) {
			continue
		}
		if err := d.putName(ctx, ref, n); errors.Is(err, ErrTooLarge) {
			continue // it stays on this disk alone
		} else if err != nil {
			return fmt.Errorf("enter the images of this machine there: %w", err)
		}
		names[k] = n
	}
	for repo, sums := range sent {
		for _, sum := range sums {
			if err := store.proofs.note(repo, sum); err != nil {
				return err
			}
		}
	}
	gone, err := d.takeNames(names)
	if err != nil {
		return err
	}
	return store.release(gone)
}

// takeNames has the store's own names be those of the ledger, and gives what led to by those that are no more.
func (d *depot) takeNames(names map[string]name) (gone []digest.Digest, err error) {
	store := d.s
	store.mu.Lock()
	defer store.mu.Unlock()
	now := store.o.Now().UTC()
	changed := false
	for k, n := range store.names {
		if !d.own(repoOf(k)) || !n.Pushed {
			continue
		}
		there, ok := names[k]
		if ok && there.Digest == n.Digest {
			there.LastUsed = n.LastUsed
			names[k] = there
			continue
		}
		if !ok && n.Life != d.ledger.Life {
			continue // it follows, and has what another life of the store had
		}
		for desc := range store.under(repoOf(k), slices.Values([]digest.Digest{n.Digest})) {
			gone = append(gone, desc.Digest)
		}
		delete(store.names, k)
		changed = true
	}
	for k, n := range names {
		n.Pushed, n.Cached, n.Life = true, false, d.ledger.Life
		if n.LastUsed.IsZero() { // nobody here noted how it was used
			n.LastUsed = now
		}
		changed = changed || store.names[k] != n
		store.names[k] = n
	}
	if !changed {
		return nil, nil
	}
	kept := map[repoImage]bool{}
	for k, n := range names {
		if i := (repoImage{repoOf(k), n.Digest}); d.complete[i] {
			kept[i] = true
		}
	}
	d.complete = kept
	store.changes++
	if err := store.saveNamesLocked(); errors.Is(err, ErrFull) {
		store.dirty = true // as in Prune: on a full disk, content goes first
	} else if err != nil {
		return nil, err
	}
	return gone, nil
}

// names reports whether the ledger has a name.
func (d *depot) names(key string, n name) bool {
	return n.Pushed && n.Life == d.ledger.Life && d.own(repoOf(key))
}

// errNowhere says that a name leads to what nobody has who can be asked.
var errNowhere = errors.New("none of those that are connected has it")

// lacking says why an image of a ledger is not here; nil: it does not name a manifest or, with parts, anything that belongs to one.
func (d *depot) lacking(ref imageref.Ref, sum digest.Digest, parts bool) error {
	if !d.own(ref) || d.ledger == nil {
		return nil
	}
	repo := imageref.Ref{Registry: ref.Registry, Repository: ref.Repository}
	var tops []digest.Digest
	d.s.mu.Lock()
	for k, n := range d.s.names {
		if repoOf(k) == repo && d.names(k, n) {
			tops = append(tops, n.Digest)
		}
	}
	d.s.mu.Unlock()
	is := slices.Contains(tops, sum)
	if parts && !is {
		for desc := range d.s.under(repo, slices.Values(tops)) {
			is = is || desc.Digest == sum
		}
	}
	if !is {
		return nil
	}
	return &DepotError{"the disks of this role's processes", errNowhere}
}

// prove has a repository have a proof of a blob that is on this disk, and that one of its names in the ledger leads to: whoever pushed that
// had one. While this process stood by, the blob may have come here for another repository.
func (d *depot) prove(repo imageref.Ref, desc ocispec.Descriptor) error {
	if elsewhere(desc) || d.s.proofs.has(repo, desc.Digest) || d.lacking(repo, desc.Digest, true) == nil {
		return nil
	}
	if size, here := d.s.hasBlob(desc.Digest); !here || size != desc.Size {
		return nil
	}
	return d.s.proofs.note(repo, desc.Digest)
}

// ReloadLedger takes the names over once more, at a process that stands by.
func ReloadLedger(ctx context.Context, s *Store) error { return s.depot.loadLedger(ctx) }

// repoImage is an image of a repository. Each repository needs proofs of its own of what an image has.
type repoImage struct {
	repo imageref.Ref
	sum  digest.Digest
}

// Completion is how Complete goes about it. The zero value fetches everything.
type Completion struct {
	Reserve int64 // bytes of the disk that stay free
	Most    int64 // bytes that all blobs may take; 0 is no bound
	// Each is told of each image that was not, and what is missing of it; nil: nothing. It ends everything by returning false.
	Each func(image digest.Digest, err error) bool

	used int64 // bytes that blobs of the store's own take, if there is a bound
}

// Complete fetches what a ledger's names lead to and is not on this disk, the newest image first. An image that cannot be had does not
// keep others from coming. What was whole before is not looked at again. Without a ledger it does nothing.
func Complete(ctx context.Context, store *Store, how Completion) {
	if store.depot == nil || store.depot.ledger == nil {
		return
	}
	added := map[repoImage]name{}
	store.mu.Lock()
	if how.Most > 0 {
		how.used = store.Cache.totalLocked() - store.Cache.sumLocked().bytes
	}
	for k, n := range store.names {
		if i := (repoImage{repoOf(k), n.Digest}); store.depot.names(k, n) && !store.depot.complete[i] {
			if have, twice := added[i]; !twice || n.Added.After(have.Added) {
				added[i] = n
			}
		}
	}
	store.mu.Unlock()
	wanted := map[digest.Digest][]imageref.Ref{} // some repositories may have the same image, and each needs a proof of it
	newest := map[digest.Digest]name{}
	for i, n := range added {
		wanted[i.sum] = append(wanted[i.sum], i.repo)
		if n.Added.After(newest[i.sum].Added) || newest[i.sum].Digest == "" {
			newest[i.sum] = n
		}
	}
	order := slices.SortedFunc(maps.Keys(wanted), func(a, b digest.Digest) int {
		return cmp.Or(newest[b].Added.Compare(newest[a].Added), cmp.Compare(a, b))
	})
	for _, sum := range order {
		var errs []error
		for _, repo := range wanted[sum] {
			err := how.image(ctx, store, repo, sum)
			if err == nil {
				store.mu.Lock()
				store.depot.complete[repoImage{repo, sum}] = true
				store.mu.Unlock()
			}
			errs = append(errs, err)
		}
		if ctx.Err() != nil || how.Each != nil && !how.Each(sum, errors.Join(errs...)) {
			return
		}
	}
}

// image has all of an image on the disk, as far as anybody has it.
func (c *Completion) image(ctx context.Context, store *Store, repo imageref.Ref, sum digest.Digest) error {
	defer store.pin(sum)()
	manifest, err := store.readManifest(sum)
	if errors.Is(err, ErrNotFound) {
		if manifest, err = store.depot.source.manifest(ctx, repo, sum.String()); err == nil {
			err = c.fits(store, int64(len(manifest.raw)))
		}
		if err == nil {
			_, err = store.putBlob(manifest.raw, sum)
			c.used += slots(int64(len(manifest.raw)))
		}
	}
	if err != nil {
		return fmt.Errorf("manifest %s of %s: %w", sum, repo.Familiar(), err)
	}
	for _, child := range manifest.children() {
		switch size, here := store.hasBlob(child.Digest); {
		case manifest.index != nil:
			err := c.image(ctx, store, repo, child.Digest)
			if err != nil && !(errors.Is(err, ErrNotFound) && !store.named(repo, child.Digest)) { // one that was never pushed
				return err
			}
		case elsewhere(child) && !store.proofs.has(repo, child.Digest):
		case here && size == child.Size:
			if !store.proofs.has(repo, child.Digest) {
				if err := store.proofs.note(repo, child.Digest); err != nil {
					return err
				}
			}
		default:
			if err := c.fits(store, child.Size); err != nil {
				return fmt.Errorf("%s: %w", repo.Familiar(), err)
			}
			if err := fetchFrom(ctx, store, repo, child, []*Source{store.depot.source}, nil); err != nil {
				return fmt.Errorf("%s: %w", repo.Familiar(), err)
			}
			c.used += slots(child.Size)
		}
	}
	return nil
}

// fits returns an ErrFull if so many bytes more are too many.
func (c *Completion) fits(s *Store, size int64) error {
	if free, ok := freeBytes(s.dir); ok && c.Reserve > 0 && free-size < c.Reserve {
		return fmt.Errorf("%w: %d bytes more would leave less than %d free on this disk", ErrFull, size, c.Reserve)
	}
	if c.Most > 0 && c.used+slots(size) > c.Most {
		return fmt.Errorf("%w: with %d bytes more, images would take more than the %d of --image-space", ErrFull, size, c.Most)
	}
	return nil
}

// Held serves what is on a store's disk, by digest and to those repositories that have it, to other processes of the same role. It fetches
// nothing from them: they may be asking because of it.
func Held(s *Store) http.Handler {
	h := &Handler{Store: s}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.held(w, r); err != nil {
			writeError(w, err)
		}
	})
}

func (h *Handler) held(w http.ResponseWriter, r *http.Request) error {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return notAllowed(w, r, "GET, HEAD")
	}
	if len(r.URL.Path) < len("/v2/") {
		return failf(http.StatusNotFound, "NAME_UNKNOWN", "only /v2/ is served here")
	}
	repository, kind, id := splitPath(r.URL.Path[len("/v2/"):])
	repo := imageref.Ref{Registry: h.registry(r), Repository: repository}
	sum, err := imageref.ParseDigest(id)
	if err != nil || !imageref.ValidRepository(repository) || kind != "blobs" && kind != "manifests" || !h.Store.depot.own(repo) {
		return failf(http.StatusNotFound, "NAME_UNKNOWN", "only manifests and blobs of this role's own images are served here, by digest")
	}
	defer h.Store.pin(sum)()
	if _, here := h.Store.hasBlob(sum); !here || !h.linked(repo, sum) {
		return failf(http.StatusNotFound, "BLOB_UNKNOWN", "%s is not here", sum)
	}
	if kind == "blobs" {
		err = h.serveFile(w, r, sum)
	} else {
		var m *manifest
		if m, err = h.Store.readManifest(sum); err == nil {
			w.Header().Set("Content-Type", m.desc.MediaType)
			w.Header().Set("Docker-Content-Digest", sum.String())
			if r.Method == http.MethodGet {
				_, err = w.Write(m.raw)
			}
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return failf(http.StatusNotFound, "BLOB_UNKNOWN", "%s is not here any more", sum)
	}
	return err
}

// LedgerImages gives the images that a ledger names.
func LedgerImages(s *Store) map[digest.Digest]bool {
	out := map[digest.Digest]bool{}
	if s.depot == nil || s.depot.ledger == nil {
		return out
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.names {
		if s.depot.names(k, n) {
			out[n.Digest] = true
		}
	}
	return out
}
