package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// Depot keeps the images of a registry for whichever process serves it, such as a bucket of S3. Objects are whole or not there. Get gives
// fs.ErrNotExist for one that is not.
type Depot interface {
	Put(ctx context.Context, name string, from io.Reader, size int64) error
	Get(ctx context.Context, name string, offset int64) (io.ReadCloser, error)
	Delete(ctx context.Context, name string) error
	List(ctx context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error
	String() string
}

// DepotError says that a registry's depot does not do what a request needs, and why.
type DepotError struct {
	Depot string
	Err   error
}

func (e *DepotError) Error() string {
	return fmt.Sprintf("the registry cannot reach where its images are kept, %s: %v", e.Depot, e.Err)
}

// Unwrap gives the reason.
func (e *DepotError) Unwrap() error { return e.Err }

// errNotLoaded is the reason before the depot was asked for the first time.
var errNotLoaded = errors.New("it was not asked yet what is there")

const (
	depotBlobs    = "blobs/" // blobs/ALGORITHM/HEX
	depotNames    = "names/" // names/REPOSITORY:TAG and names/REPOSITORY@DIGEST, each a depotName
	depotParallel = 16       // small objects that are read at a time
	depotSends    = 4        // blobs that are sent at a time, each with a part in memory
	depotFailures = 3        // deletions that fail before the others wait for the next time
	maxDepotName  = 64 << 10 // bytes
	// maxDepotBlobs and maxDepotNames are less than a depot lists: what one tenant pushed would keep the registry from starting.
	maxDepotBlobs, maxDepotNames = 400_000, 400_000
)

// depot is a store whose own images lie in a Depot. The blobs on the disk are copies: manifests and configs of all images, and as many
// layers as the cache has room for. names.json is a copy of the names, which counts while the depot is away.
//
//	a push:      blobs, manifest, then names go to the depot, and each is acknowledged when it is there
//	a deletion:  names go from the depot, then blobs that no name needs
type depot struct {
	Depot
	s      *Store
	source *Source // of blobs, for the store's own ways of fetching them
	ledger *Ledger // the depot has names alone; nil: it has blobs, too

	sends chan struct{} // taken by who sends a blob

	mostBlobs, mostNames int
	leastNames           int // that each owner may have while there are any left
	mostName             int // bytes of a name's record

	// Guarded by Store.mu.
	leader   Leader // as this process has noted; zero: it has not
	loaded   bool
	why      error // it is not
	blobs    map[digest.Digest]depotBlob
	doomed   map[digest.Digest]chan struct{} // blobs that are being deleted there; closed when that is over
	left     map[digest.Digest]depotBlob     // blobs whose deletion failed: nobody knows whether they are there
	complete map[repoImage]bool              // of a ledger: images that are whole on this disk, as far as it was looked
	// damaged were not what their digests say when they were read first.
	damaged map[digest.Digest]bool
	// doubts are names, by their keys, of which nobody knows what the depot says: a change failed, and may have been made. What they
	// may lead to stays until the function is called.
	doubts map[string]map[digest.Digest]func()
}

type depotBlob struct {
	size  int64
	since time.Time
}

// depotName is what an object has that stands for a name.
type depotName struct {
	name
	// Sent are layers that a manifest says lie elsewhere, and that the repository has nevertheless.
	Sent []digest.Digest `json:"sent,omitempty"`
}

func newDepot(s *Store, to Depot) *depot {
	d := &depot{Depot: to, s: s, why: errNotLoaded, sends: make(chan struct{}, depotSends), blobs: map[digest.Digest]depotBlob{},
		doomed: map[digest.Digest]chan struct{}{}, left: map[digest.Digest]depotBlob{}, damaged: map[digest.Digest]bool{},
		doubts: map[string]map[digest.Digest]func(){}, mostBlobs: maxDepotBlobs, mostNames: maxDepotNames,
		leastNames: minNames, mostName: maxDepotName}
	d.source = &Source{BaseURL: "http://depot", Transport: depotTransport{d}}
	return d
}

func (d *depot) fail(err error) error {
	if err == nil {
		return nil
	}
	return &DepotError{d.String(), err}
}

func blobObject(sum digest.Digest) string {
	return depotBlobs + sum.Algorithm().String() + "/" + sum.Encoded()
}

// nameObject gives the object of a name in the index, and the name in the index of an object.
func (d *depot) nameObject(key string) string {
	return depotNames + strings.TrimPrefix(key, d.s.o.Local+"/")
}

func (d *depot) keyOf(object string) (string, error) {
	ref, err := imageref.Parse(d.s.o.Local + "/" + strings.TrimPrefix(object, depotNames))
	if err == nil && d.nameObject(key(ref)) != object {
		err = errors.New("it is written in another way")
	}
	if err != nil {
		return "", fmt.Errorf("object %.300q is not the name of an image: %w", object, err)
	}
	return key(ref), nil
}

func parseDepotName(raw []byte) (n depotName, err error) {
	if err := json.Unmarshal(raw, &n); err != nil {
		return depotName{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for _, sum := range append(slices.Clone(n.Sent), n.Digest) {
		if _, err := imageref.ParseDigest(sum.String()); err != nil {
			return depotName{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return n, nil
}

// own reports whether the images of a repository lie in the depot.
func (d *depot) own(ref imageref.Ref) bool { return d != nil && ref.Registry == d.s.o.Local }

// behind gives the sources of a repository's blobs, with the depot first. Standbys come last: they lack what is the tier's above.
func behind(s *Store, ref imageref.Ref, sources []*Source) []*Source {
	if !s.depot.own(ref) {
		return sources
	}
	if s.depot.ledger != nil {
		return append(slices.Clone(sources), s.depot.source)
	}
	return append([]*Source{s.depot.source}, sources...)
}

// away says why a name that is not here may be in the depot nevertheless; nil: it is not.
func (d *depot) away(ref imageref.Ref) error {
	if !d.own(ref) {
		return nil
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.loaded {
		return nil
	}
	return d.fail(d.why)
}

// stored gives the size of a blob that is here or in the depot.
func stored(s *Store, sum digest.Digest) (int64, bool) {
	if n, here := s.hasBlob(sum); here || s.depot == nil {
		return n, here
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return storedLocked(s, sum)
}

func storedLocked(s *Store, sum digest.Digest) (int64, bool) {
	if n, here := s.hasBlob(sum); here || s.depot == nil {
		return n, here
	}
	b, there := s.depot.blobs[sum]
	return b.size, there
}

// keep has a blob of a repository in the depot, and on the disk at least until then.
func (d *depot) keep(ctx context.Context, ref imageref.Ref, sum digest.Digest) error {
	if !d.own(ref) || d.ledger != nil {
		return nil
	}
	store := d.s
	defer store.pin(sum)()
	for {
		store.mu.Lock()
		_, there := d.blobs[sum]
		doomed, loaded, why := d.doomed[sum], d.loaded, d.why
		full := len(d.blobs)+len(d.left) >= d.mostBlobs
		store.mu.Unlock()
		switch {
		case !loaded: // a blob that another process has deleted would count as there
			return d.fail(why)
		case there:
			return nil
		case full:
			return d.full("blobs")
		case doomed == nil:
			return d.put(ctx, sum)
		}
		select {
		case <-doomed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// full refuses what would be one object too many.
func (d *depot) full(what string) error {
	return fmt.Errorf("%w: %s has as many %s as a registry reads when it starts", ErrFull, d, what)
}

// put sends a blob that is on the disk. One that the medium has changed is not sent.
func (d *depot) put(ctx context.Context, sum digest.Digest) error {
	select {
	case d.sends <- struct{}{}:
		defer func() { <-d.sends }()
	case <-ctx.Done():
		return ctx.Err()
	}
	file, err := os.Open(d.s.blobPath(sum))
	if err != nil {
		return err
	}
	defer file.Close()
	st, err := file.Stat()
	if err != nil {
		return err
	}
	h := sum.Algorithm().Digester()
	if err := d.Put(ctx, blobObject(sum), io.TeeReader(file, h.Hash()), st.Size()); err != nil {
		return d.fail(err)
	}
	if h.Digest() != sum {
		return errors.Join(drop(d.s, file, sum), d.fail(d.Delete(context.WithoutCancel(ctx), blobObject(sum))))
	}
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	d.blobs[sum] = depotBlob{st.Size(), d.s.o.Now()}
	delete(d.left, sum)
	return nil
}

// copyLocked reports whether a blob on the disk is a copy of one in the depot.
func (d *depot) copyLocked(sum digest.Digest) bool {
	_, there := d.blobs[sum]
	return there
}

// forget says that a blob is not in the depot, or not what it should be: whoever pushes it next has to send it.
func (d *depot) forget(sum digest.Digest) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	delete(d.blobs, sum)
}

// collected deletes the names from the depot that Collect has removed here, and what only they needed. A name whose deletion fails comes
// back.
func (d *depot) collected(ctx context.Context, names map[string]name, blobs []digest.Digest) error {
	var errs []error
	for k, n := range names {
		if len(errs) >= depotFailures {
			d.back(k, n)
		} else if err := d.unname(ctx, k, n); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		return errors.Join(append(errs, d.s.saveNamesLocked())...)
	}
	return d.sweep(ctx, blobs)
}

// sweep deletes those of some blobs from the depot that nothing needs. It deletes nothing while something that it cannot read may need one.
func (d *depot) sweep(ctx context.Context, sums []digest.Digest) error {
	if d.ledger != nil {
		return nil
	}
	if err := d.leads(ctx); err != nil {
		return err
	}
	store := d.s
	store.mu.Lock()
	if err := d.knownLocked(); err != nil {
		store.mu.Unlock()
		return err
	}
	live, _, err := store.liveLocked(ctx, nil)
	if err != nil {
		store.mu.Unlock()
		return err
	}
	gone := map[digest.Digest]depotBlob{}
	over := make(chan struct{})
	for _, sum := range sums {
		b, there := d.blobs[sum]
		if !there {
			b, there = d.left[sum]
		}
		if !there || live[sum] || !store.asked[sum].IsZero() || d.doomed[sum] != nil {
			continue
		}
		gone[sum] = b
		d.doomed[sum] = over
		delete(d.blobs, sum)
		delete(d.left, sum)
	}
	store.mu.Unlock()
	var errs []error
	for sum, b := range gone {
		if len(errs) < depotFailures {
			err := d.Delete(ctx, blobObject(sum))
			if err == nil {
				continue
			}
			errs = append(errs, d.fail(err))
		}
		store.mu.Lock()
		d.left[sum] = b // for the next time
		store.mu.Unlock()
	}
	store.mu.Lock()
	for sum := range gone {
		delete(d.doomed, sum)
	}
	store.mu.Unlock()
	close(over)
	return errors.Join(errs...)
}

// knownLocked returns an error unless every manifest is here of which the depot has one.
func (d *depot) knownLocked() error {
	if !d.loaded {
		return d.fail(d.why)
	}
	for k, n := range d.s.names {
		if !d.own(repoOf(k)) {
			continue
		}
		for sum := range manifestsUnder(d.s, n.Digest) {
			if _, there := d.blobs[sum]; (there || d.damaged[sum]) && readable(d.s, sum) != nil {
				return fmt.Errorf("manifest %s of %s: %w", sum, k, readable(d.s, sum))
			}
		}
	}
	return nil
}

func readable(s *Store, sum digest.Digest) error {
	_, err := s.readManifest(sum)
	return err
}

// manifestsUnder gives a manifest and, of an index, all that it names.
func manifestsUnder(s *Store, top digest.Digest) map[digest.Digest]bool {
	out := map[digest.Digest]bool{}
	var walk func(sum digest.Digest)
	walk = func(sum digest.Digest) {
		if out[sum] {
			return
		}
		out[sum] = true
		if m, err := s.readManifest(sum); err == nil && m.index != nil {
			for _, c := range m.index.Manifests {
				walk(c.Digest)
			}
		}
	}
	walk(top)
	return out
}

// sweepOld deletes what nothing has needed for a day: what was left by pushes, and by deletions that were cut off.
func (d *depot) sweepOld(ctx context.Context) error {
	d.s.mu.Lock()
	old := slices.Collect(maps.Keys(d.left))
	for sum, b := range d.blobs {
		if d.s.o.Now().Sub(b.since) > unnamed {
			old = append(old, sum)
		}
	}
	d.s.mu.Unlock()
	return d.sweep(ctx, old)
}
