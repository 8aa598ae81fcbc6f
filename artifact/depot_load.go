package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/errgroup"

	"skerry.dev/skerry/artifact/imageref"
)

// LoadDepot finds out what the depot has, which from then on is what the registry has. Images of a store that was never used with this
// depot are sent there first. Until it has gone well, nothing is pushed or deleted, and only what is on the disk is served. It may be
// called again until then; later, or without a depot, it does nothing.
func LoadDepot(ctx context.Context, store *Store) error {
	kept := store.depot
	if kept == nil {
		return nil
	}
	store.mu.Lock()
	loaded := kept.loaded
	store.mu.Unlock()
	if loaded {
		return nil // what is pushed meanwhile is not among what would be read
	}
	err := kept.load(ctx)
	store.mu.Lock()
	defer store.mu.Unlock()
	if err != nil {
		kept.why = err
		return kept.fail(err)
	}
	kept.loaded, kept.why = true, nil
	return nil
}

func (d *depot) load(ctx context.Context) error {
	if d.ledger != nil {
		return d.loadLedger(ctx)
	}
	store := d.s
	blobs := map[digest.Digest]depotBlob{}
	err := d.List(ctx, depotBlobs, func(object string, size int64, at time.Time) error {
		algorithm, hex, _ := strings.Cut(strings.TrimPrefix(object, depotBlobs), "/")
		if sum, err := imageref.ParseDigest(algorithm + ":" + hex); err == nil {
			blobs[sum] = depotBlob{size, at}
		}
		return nil
	})
	if err != nil {
		return err
	}
	names, sent, err := d.readNames(ctx)
	if err != nil {
		return err
	}
	store.mu.Lock()
	d.blobs = blobs
	store.mu.Unlock()
	marker := filepath.Join(store.dir, "depot")
	was, _ := os.ReadFile(marker)
	if err := d.begin(ctx, string(was) == d.String()); err != nil {
		return err
	}
	if string(was) != d.String() {
		if err := d.adopt(ctx, names); err != nil {
			return fmt.Errorf("send the images of this machine there: %w", err)
		}
	}
	if err := d.fetchManifests(ctx, names); err != nil {
		return err
	}
	for repo, sums := range sent {
		for _, sum := range sums {
			if err := store.proofs.note(repo, sum); err != nil {
				return err
			}
		}
	}
	store.mu.Lock()
	now := store.o.Now().UTC()
	for k, n := range store.names {
		if d.own(repoOf(k)) && store.Cache.own(k, n) {
			if there, ok := names[k]; ok && there.Digest == n.Digest {
				there.LastUsed = n.LastUsed
				names[k] = there
			}
			delete(store.names, k)
		}
	}
	for k, n := range names {
		if n.LastUsed.IsZero() { // nobody here noted how it was used
			n.LastUsed = now
		}
		n.Life = "" // a ledger that has it no more does not mean that it was deleted
		store.names[k] = n
	}
	store.changes++
	err = store.saveNamesLocked()
	store.mu.Unlock()
	if err != nil {
		return err
	}
	return diskError(os.WriteFile(marker, []byte(d.String()), 0o600))
}

// depotFormat is the content of the object that says what the others are.
const depotFormat = `{"skerry":"images","version":1}`

// begin checks that the depot is one, or makes it one if it was never used from here.
func (d *depot) begin(ctx context.Context, used bool) error {
	const object = "format.json"
	raw, err := d.read(ctx, object, maxDepotName)
	switch {
	case errors.Is(err, fs.ErrNotExist) && used:
		return fmt.Errorf("it is not the one that was used before: there is no %s. "+
			"If its images are lost, remove the file %s: then those of this machine are sent there",
			object, filepath.Join(d.s.dir, "depot"))
	case errors.Is(err, fs.ErrNotExist):
		return d.Put(ctx, object, strings.NewReader(depotFormat), int64(len(depotFormat)))
	case err == nil && string(raw) != depotFormat:
		return fmt.Errorf("its %s is not that of this version, but %.100q", object, raw)
	}
	return err
}

// readNames reads all names, and the layers that repositories have of those that lie elsewhere.
func (d *depot) readNames(ctx context.Context) (map[string]name, map[imageref.Ref][]digest.Digest, error) {
	names, sent := map[string]name{}, map[imageref.Ref][]digest.Digest{}
	var mu sync.Mutex
	take := func(k, object string, raw []byte) error {
		n, err := parseDepotName(raw)
		if err != nil {
			return fmt.Errorf("object %s: %w", object, err)
		}
		n.LastUsed = time.Time{}
		mu.Lock()
		defer mu.Unlock()
		names[k] = n.name
		sent[repoOf(k)] = append(sent[repoOf(k)], n.Sent...)
		return nil
	}
	if records, ok := d.Depot.(recordLister); ok && d.ledger != nil {
		err := records.ListRecords(ctx, depotNames, func(object string, raw []byte) error {
			k, err := d.keyOf(object)
			if err != nil {
				return err
			}
			return take(k, object, raw)
		})
		return names, sent, err
	}
	reads, gctx := errgroup.WithContext(ctx)
	reads.SetLimit(depotParallel)
	err := d.List(ctx, depotNames, func(object string, _ int64, _ time.Time) error {
		k, err := d.keyOf(object)
		if err != nil {
			return err
		}
		reads.Go(func() error {
			raw, err := d.read(gctx, object, maxDepotName)
			if errors.Is(err, fs.ErrNotExist) {
				return nil // deleted meanwhile
			}
			if err != nil {
				return err
			}
			return take(k, object, raw)
		})
		return nil
	})
	return names, sent, errors.Join(err, reads.Wait())
}

// read reads a small object.
func (d *depot) read(ctx context.Context, object string, limit int64) ([]byte, error) {
	from, err := d.Get(ctx, object, 0)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	raw, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(raw)) > limit {
		err = fmt.Errorf("object %s: %w", object, ErrTooLarge)
	}
	return raw, err
}

// adopt sends what this store has and the depot has not. A name that the depot has means what it says there.
func (d *depot) adopt(ctx context.Context, names map[string]name) error {
	store := d.s
	store.mu.Lock()
	mine := maps.Clone(store.names)
	store.mu.Unlock()
	for k, n := range mine {
		ref, err := imageref.Parse(k)
		if _, there := names[k]; err != nil || there || !store.Cache.own(k, n) || !d.own(ref) {
			continue
		}
		for desc := range store.under(repoOf(k), slices.Values([]digest.Digest{n.Digest})) {
			store.mu.Lock()
			_, there := d.blobs[desc.Digest]
			store.mu.Unlock()
			if _, here := store.hasBlob(desc.Digest); !here || there {
				continue // of an index, what was never pushed
			}
			if err := d.put(ctx, desc.Digest); err != nil {
				return err
			}
		}
		n.Pushed = true
		if err := d.putName(ctx, ref, n); err != nil {
			return err
		}
		names[k] = n
	}
	return nil
}

// fetchManifests has all manifests and configs on the disk, without which nobody knows what an image consists of.
func (d *depot) fetchManifests(ctx context.Context, names map[string]name) error {
	reads, gctx := errgroup.WithContext(ctx)
	reads.SetLimit(depotParallel)
	var mu sync.Mutex
	seen := map[digest.Digest]bool{}
	var fetch func(sum digest.Digest, isManifest bool) error
	fetch = func(sum digest.Digest, isManifest bool) error {
		mu.Lock()
		known := seen[sum]
		seen[sum] = true
		mu.Unlock()
		if known {
			return nil
		}
		err := d.small(gctx, sum)
		if errors.Is(err, ErrDigest) || errors.Is(err, ErrTooLarge) {
			d.forget(sum) // it is not what it was: whoever pushes it again has to send it, and all others need not wait for that
			d.s.mu.Lock()
			d.damaged[sum] = true
			d.s.mu.Unlock()
			return nil
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && !isManifest {
			return nil // of an index, what was never pushed
		} else if err != nil {
			return err
		}
		m, err := d.s.readManifest(sum)
		if err != nil {
			return err
		}
		for _, c := range m.children() {
			if err == nil && (m.index != nil || c.Digest == m.image.Config.Digest) {
				err = fetch(c.Digest, m.index != nil)
			}
		}
		return err
	}
	for _, n := range names {
		reads.Go(func() error { return fetch(n.Digest, true) })
	}
	return reads.Wait()
}

// small has a manifest or config on the disk.
func (d *depot) small(ctx context.Context, sum digest.Digest) error {
	if _, err := d.s.readBlob(sum); err == nil || errors.Is(err, ErrTooLarge) {
		return nil
	}
	d.s.mu.Lock()
	b, there := d.blobs[sum]
	d.s.mu.Unlock()
	if !there || b.size > maxManifest { // a config may be as large as one likes; it is fetched when it is asked for
		return fs.ErrNotExist
	}
	raw, err := d.read(ctx, blobObject(sum), maxManifest)
	if err == nil {
		_, err = d.s.putBlob(raw, sum)
	}
	return err
}

// depotTransport answers the requests of a Source for blobs, and for manifests by digest, from the depot.
type depotTransport struct{ d *depot }

// RoundTrip implements http.RoundTripper.
func (t depotTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int, size int64, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: body,
			ContentLength: size, Request: r}, nil
	}
	_, kind, rest := splitPath(strings.TrimPrefix(r.URL.Path, "/v2/"))
	sum, err := imageref.ParseDigest(rest)
	if err != nil || kind != "blobs" && kind != "manifests" {
		return answer(http.StatusNotFound, 0, http.NoBody)
	}
	store := t.d.s
	store.mu.Lock()
	blob, there := t.d.blobs[sum]
	loaded, why := t.d.loaded, t.d.why
	store.mu.Unlock()
	if !there && !loaded {
		return nil, t.d.fail(why)
	}
	if !there {
		return answer(http.StatusNotFound, 0, http.NoBody)
	}
	if r.Method == http.MethodHead {
		return answer(http.StatusOK, blob.size, http.NoBody)
	}
	from, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Range"), "bytes="), "-")
	offset, _ := strconv.ParseInt(from, 10, 64)
	body, err := t.d.Get(r.Context(), blobObject(sum), offset)
	if errors.Is(err, fs.ErrNotExist) {
		t.d.forget(sum)
		return answer(http.StatusNotFound, 0, http.NoBody)
	}
	if err != nil {
		return nil, t.d.fail(err)
	}
	if offset == 0 {
		return answer(http.StatusOK, blob.size, body)
	}
	res, err := answer(http.StatusPartialContent, blob.size-offset, body)
	res.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", offset, blob.size-1, blob.size))
	return res, err
}
