package artifact

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/files"
)

type namesFile struct {
	Version int             `json:"version"`
	Names   map[string]name `json:"names"`
}

// namesVersion is that of a list with digests by another algorithm than SHA-256; one without has version 1.
const namesVersion = 2

var errNames = errors.New("names.json is damaged")

func (s *Store) loadNames(raw []byte) error {
	var f namesFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return fmt.Errorf("%w (%w); move it away: images must then be pulled, or named, again", errNames, err)
	}
	if f.Version > namesVersion {
		return fmt.Errorf("names.json has version %d and this program knows %d; use the newer program", f.Version, namesVersion)
	}
	for k, n := range f.Names {
		if _, err := imageref.ParseDigest(n.Digest.String()); err != nil {
			return fmt.Errorf("%w: %s: %w", errNames, k, err)
		}
		s.names[k] = n
	}
	return nil
}

func (s *Store) saveNamesLocked() error {
	version := 1
	for _, n := range s.names {
		if n.Digest.Algorithm() != digest.Canonical {
			version = namesVersion // programs that know only 1 would take such a file for damaged
			break
		}
	}
	if err := files.Replace(filepath.Join(s.dir, "names.json"), mustJSON(namesFile{version, s.names}), 0o600); err != nil {
		return diskError(err)
	}
	s.dirty = false
	return nil
}

// setName writes the index when something other than the time of use changes: that alone is not worth a write to flash.
func (s *Store) setName(r imageref.Ref, d digest.Digest) error { return s.putName(r, name{Digest: d}) }

// putName is setName with what else is known: that a client put it here, or that it came from another registry.
func (s *Store) putName(ref imageref.Ref, n name) error {
	sum := n.Digest
	key := key(ref)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now().UTC()
	old, had := s.names[key]
	n.Cached = n.Cached && !(had && old.Pushed && old.Digest == sum)
	if had && old.Digest == sum && (old.Pushed || !n.Pushed) && (old.Cached || !n.Cached) {
		old.LastUsed = now
		s.names[key], s.dirty = old, true
		return nil
	}
	n.Added, n.LastUsed = now, now
	s.names[key] = n
	if had {
		untaggedLocked(s, ref, old)
	}
	s.changes++
	if err := s.saveNamesLocked(); err != nil {
		if delete(s.names, key); had {
			s.names[key] = old
		}
		return err
	}
	return nil
}

func (s *Store) used(r imageref.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.names[key(r)]; ok {
		n.LastUsed = s.o.Now().UTC()
		s.names[key(r)], s.dirty = n, true
	}
}

// key is the name of r in the index: by digest if it has one, for then its tag means nothing.
func key(r imageref.Ref) string {
	if r.Digest != "" {
		return r.Pinned(r.Digest).String()
	}
	return r.String()
}

// Lookup gives the digest that a name means in this store, without asking anybody.
func (s *Store) Lookup(r imageref.Ref) (digest.Digest, bool) {
	s.mu.Lock()
	n, ok := s.names[key(r)]
	s.mu.Unlock()
	if !ok && r.Digest != "" {
		_, ok = s.hasBlob(r.Digest)
		return r.Digest, ok
	}
	return n.Digest, ok
}

// pushedTo reports whether a client put a name into a store.
func pushedTo(s *Store, r imageref.Ref) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[key(r)].Pushed
}

// Tag gives an image that is in the store a further name.
func (s *Store) Tag(from, to string) error {
	a, err := imageref.Parse(from)
	if err != nil {
		return err
	}
	b, err := imageref.Parse(to)
	if err != nil {
		return err
	}
	if b.Digest != "" {
		return fmt.Errorf("tag %s: a name cannot be given with a digest; use a tag", to)
	}
	d, ok := s.Lookup(a)
	if !ok {
		return &NotFoundError{Ref: a.Familiar(), Where: []string{"this store"}}
	}
	return s.setName(b, d)
}

// Entry is one line of List.
type Entry struct {
	Ref       string        `json:"ref"` // full form
	Digest    digest.Digest `json:"digest"`
	Platforms []Platform    `json:"platforms"` // those whose layers are here
	Size      int64         `json:"size"`      // bytes of its blobs, once each, as transferred
	Created   time.Time     `json:"created"`   // by the builder's word
	Added     time.Time     `json:"added"`
	LastUsed  time.Time     `json:"lastUsed"`
	Broken    string        `json:"broken,omitempty"` // why it cannot be used, if so
	Pushed    bool          `json:"-"`                // by a client, to a registry that serves this store
}

// List gives every name, sorted.
func (s *Store) List() []Entry {
	s.mu.Lock()
	out := make([]Entry, 0, len(s.names))
	for k, n := range s.names {
		out = append(out, Entry{Ref: k, Digest: n.Digest, Added: n.Added, LastUsed: n.LastUsed, Pushed: n.Pushed})
	}
	s.mu.Unlock()
	for i := range out {
		e := &out[i]
		sizes := map[digest.Digest]int64{}
		if err := s.inspect(e, e.Digest, sizes); err != nil {
			e.Broken = err.Error()
		}
		for _, n := range sizes {
			e.Size += n
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Ref, b.Ref) })
	return out
}

func (s *Store) inspect(e *Entry, sum digest.Digest, sizes map[digest.Digest]int64) error {
	manifest, err := s.readManifest(sum)
	if err != nil {
		return err
	}
	sizes[sum] = manifest.desc.Size
	repo, err := imageref.Parse(e.Ref)
	if err != nil {
		return err
	}
	if manifest.index != nil {
		for _, c := range manifest.index.Manifests {
			if _, here := s.hasBlob(c.Digest); here && sizes[c.Digest] == 0 {
				if err := s.inspect(e, c.Digest, sizes); err != nil {
					return err
				}
			}
		}
		return nil
	}
	whole := true
	for _, c := range manifest.children() {
		if n, ok := stored(s, c.Digest); ok && (!elsewhere(c) || s.proofs.has(repo, c.Digest)) {
			sizes[c.Digest] = n
		} else {
			whole = false
		}
	}
	raw, err := s.readBlob(manifest.image.Config.Digest)
	if err != nil {
		if errors.Is(err, ErrNotFound) {
			return nil // an index of which other platforms were fetched
		}
		return err
	}
	var c ocispec.Image
	if err := json.Unmarshal(raw, &c); err != nil {
		return err
	}
	if c.Created != nil && c.Created.After(e.Created) {
		e.Created = *c.Created
	}
	if whole {
		e.Platforms = append(e.Platforms, fromSpec(&c.Platform))
	}
	return nil
}

// Remove takes a name away. The content goes with the next Prune, unless another name needs it.
func (s *Store) Remove(ref string) error {
	r, err := imageref.Parse(ref)
	if err != nil {
		return err
	}
	return s.removeName(r)
}

func (s *Store) removeName(r imageref.Ref) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.names[key(r)]
	if !ok {
		return &NotFoundError{Ref: r.Familiar(), Where: []string{"this store"}}
	}
	delete(s.names, key(r))
	untaggedLocked(s, r, old)
	s.changes++
	if err := s.saveNamesLocked(); err != nil {
		s.names[key(r)] = old
		return err
	}
	return nil
}

// untaggedLocked counts the end of a name as a use of its image, as far as that has another one, by digest: nobody noted how the tag was
// used.
func untaggedLocked(s *Store, r imageref.Ref, old name) {
	k := key(r.Pinned(old.Digest))
	if n, ok := s.names[k]; ok {
		n.LastUsed = s.o.Now().UTC()
		s.names[k] = n
	}
}

// Pruned says what Prune removed.
type Pruned struct {
	Names  []string // full form
	Blobs  int
	Layers int
	Bytes  int64 // freed
}

// Prune removes the names that keep refuses and that were not used since before, and then all content that no name, no
// running call and nothing given in digests needs. The caller names in digests what desired services use now and would
// roll back to. keep nil keeps every name.
func (s *Store) Prune(digests []digest.Digest, before time.Time, keep func(Entry) bool) (Pruned, error) {
	return prune(context.Background(), s, digests, before, keep)
}

// PruneUntil removes what no name needs and was not changed since before, as far as it gets until ctx ends.
func PruneUntil(ctx context.Context, s *Store, before time.Time) (Pruned, error) {
	return prune(ctx, s, nil, before, nil)
}

func prune(ctx context.Context, s *Store, digests []digest.Digest, before time.Time, keep func(Entry) bool) (Pruned, error) {
	out, gone, err := s.prune(ctx, digests, before, keep)
	// Trees are large: they were renamed away under the lock, and go without it.
	for _, dir := range gone {
		if ctx.Err() != nil {
			break // Open removes the rest
		}
		out.Bytes += treeSize(dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return out, err
}

func (s *Store) prune(ctx context.Context, digests []digest.Digest, before time.Time, keep func(Entry) bool) (out Pruned, gone []string,
	err error) {
	var drop []string
	kept := map[digest.Digest]bool{}
	for _, d := range digests {
		kept[d] = true
	}
	// The signatures of what is in use stay, for when their registry is away.
	signatures := map[string]bool{}
	for d := range kept {
		signatures[SignatureTag(d)] = true
	}
	signs := func(ref string) bool { return signatures[ref[strings.LastIndexByte(ref, ':')+1:]] }
	for _, e := range s.List() {
		if keep != nil && !keep(e) && e.LastUsed.Before(before) && !kept[e.Digest] && !signs(e.Ref) {
			drop = append(drop, e.Ref)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range drop {
		if n, ok := s.names[k]; ok && n.LastUsed.Before(before) {
			delete(s.names, k)
			out.Names = append(out.Names, k)
		}
	}
	if len(out.Names) > 0 {
		// Fewer names need no more room than before, but a new file does: on a full disk, content goes first.
		if err := s.saveNamesLocked(); err != nil && !errors.Is(err, ErrFull) {
			return out, gone, err
		} else if err != nil {
			s.dirty = true
		}
	}
	for _, g := range s.grants { // uploaded, but not named yet
		for d, since := range g {
			if since.Before(before) {
				delete(g, d) // an upload that nobody finished
			}
		}
	}
	s.changes++
	live, layers, err := s.liveLocked(ctx, kept)
	if err != nil {
		return out, gone, err
	}
	blobs, err := blobsOf(s)
	if err != nil {
		return out, gone, err
	}
	for d, st := range blobs {
		if live[d] || !st.ModTime().Before(before) {
			continue
		}
		if ctx.Err() != nil {
			return out, gone, ctx.Err()
		}
		if err := s.proofs.removeBlob(d); err != nil {
			return out, gone, err
		}
		out.Blobs++
		out.Bytes += st.Size()
	}
	partial, err := os.ReadDir(filepath.Join(s.dir, "partial"))
	if err != nil {
		return out, gone, err
	}
	for _, e := range partial {
		st, err := e.Info()
		if err != nil || s.flights[e.Name()] != nil || !st.ModTime().Before(before) {
			continue
		}
		if os.Remove(filepath.Join(s.dir, "partial", e.Name())) == nil {
			out.Bytes += st.Size()
		}
	}
	dirs, err := os.ReadDir(filepath.Join(s.dir, "layers"))
	if err != nil {
		return out, gone, err
	}
	for _, e := range dirs {
		st, err := e.Info()
		if err != nil || layers[e.Name()] || !st.ModTime().Before(before) {
			continue
		}
		// Renamed first: a crash must not leave half a layer that looks whole.
		to := s.tmpName("layer-")
		if err := os.Rename(filepath.Join(s.dir, "layers", e.Name()), to); err != nil {
			return out, gone, err
		}
		gone = append(gone, to)
		out.Layers++
	}
	if s.dirty {
		return out, gone, s.saveNamesLocked()
	}
	return out, gone, nil
}

func treeSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			if st, err := e.Info(); err == nil {
				n += st.Size()
			}
		}
		return nil
	})
	return n
}

// touch notes the use of every name of a digest.
func (s *Store) touch(d digest.Digest, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.names {
		if n.Digest == d {
			n.LastUsed = now.UTC()
			s.names[k], s.dirty = n, true
		}
	}
}

// content gives everything that the names of a repository lead to, once each.
func (s *Store) content(repo imageref.Ref) iter.Seq[ocispec.Descriptor] {
	return s.under(repo, maps.Values(s.namesOf(repo)))
}

// under gives what some manifests of a repository lead to, themselves among it, once each.
func (s *Store) under(repo imageref.Ref, tops iter.Seq[digest.Digest]) iter.Seq[ocispec.Descriptor] {
	return func(yield func(ocispec.Descriptor) bool) {
		seen := map[digest.Digest]bool{}
		var walk func(d ocispec.Descriptor, isManifest bool) bool
		walk = func(d ocispec.Descriptor, isManifest bool) bool {
			if seen[d.Digest] {
				return true
			}
			seen[d.Digest] = true
			if !yield(d) {
				return false
			}
			if !isManifest {
				return true
			}
			m, err := s.readManifest(d.Digest)
			if err != nil {
				return true
			}
			for _, c := range m.children() {
				if m.index == nil && elsewhere(c) && !s.proofs.has(repo, c.Digest) {
					continue
				}
				if !walk(c, m.index != nil) {
					return false
				}
			}
			return true
		}
		for d := range tops {
			n, _ := s.hasBlob(d)
			if !walk(ocispec.Descriptor{Digest: d, Size: n}, true) {
				return
			}
		}
	}
}

// repoOf gives the repository of a name in the index.
func repoOf(name string) imageref.Ref {
	ref, _ := imageref.Parse(name)
	return imageref.Ref{Registry: ref.Registry, Repository: ref.Repository}
}

// namesOf gives the digests that a repository's names mean, by tag or digest.
func (s *Store) namesOf(repo imageref.Ref) map[string]digest.Digest {
	out := map[string]digest.Digest{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.names {
		rest, ok := strings.CutPrefix(k, repo.Name())
		if ok && rest != "" && (rest[0] == ':' || rest[0] == '@') {
			out[rest[1:]] = n.Digest
		}
	}
	return out
}

// Has reports whether an image, or a manifest of one, is here for the repository of a reference, and not only for another.
func (s *Store) Has(r imageref.Ref, d digest.Digest) bool {
	repo := imageref.Ref{Registry: r.Registry, Repository: r.Repository}
	if s.named(repo, d) {
		return true
	}
	for desc := range s.content(repo) {
		if desc.Digest == d {
			return true
		}
	}
	return false
}

// named reports whether a repository has a name for a manifest itself.
func (s *Store) named(repo imageref.Ref, d digest.Digest) bool {
	for _, have := range s.namesOf(repo) {
		if have == d {
			return true
		}
	}
	return false
}
