package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// CacheUse is what a store holds of other registries: blobs that no image of its own needs, and what comes of such.
type CacheUse struct {
	Bytes   int64 `json:"bytes"`
	Max     int64 `json:"max"`
	Evicted int64 `json:"evicted"` // names that went for others since the store was opened
}

// keptForSmall is which part of the cache layers on their way leave for manifests and configs, without which no image can be looked up.
const keptForSmall = 16

// errBusy says that something does not fit into the cache beside what is on its way. Whoever sends that may be in no hurry, so that a blob
// is then passed on without being kept.
var errBusy = fmt.Errorf("%w: what is on its way takes up the cache of other registries; try again later, "+
	"or have the operator raise --image-cache", ErrFull)

// errNotAsked says that room has to be made, and that there was enough when it was looked whether to ask what is in use.
var errNotAsked = errors.New("nobody was asked what is in use")

// Cache is what a store holds of other registries.
type Cache struct {
	s *Store

	// Guarded by Store.mu.
	inUse   func() []digest.Digest
	evicted int64
}

// Use says how much that is.
func (c *Cache) Use() CacheUse {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return CacheUse{Bytes: c.sumLocked().bytes, Max: c.s.o.MaxCache, Evicted: c.evicted}
}

// cached is a name that may go, with what it alone keeps.
type cachedName struct {
	key   string
	used  time.Time
	inUse bool
	kept  bool // the name is the store's own: only copies of what its depot has go
	blobs []digest.Digest
}

type cacheState struct {
	bytes int64
	names []cachedName
	refs  map[digest.Digest]int // of blobs that may go, by how many of the names
}

// own reports whether a name is no copy of what another registry has.
func (c *Cache) own(key string, n name) bool {
	return !n.Cached && (n.Pushed || strings.HasPrefix(key, c.s.o.Local+"/"))
}

// sumLocked sums what is not the store's own.
func (k *Cache) sumLocked() (state cacheState) {
	store := k.s
	tops := map[imageref.Ref][]digest.Digest{} // by repository
	state.refs = map[digest.Digest]int{}
	for name, n := range store.names {
		if k.own(name, n) {
			tops[repoOf(name)] = append(tops[repoOf(name)], n.Digest)
			if store.depot.own(repoOf(name)) {
				state.names = append(state.names, cachedName{key: name, used: n.LastUsed, kept: true})
			}
		} else {
			state.names = append(state.names, cachedName{key: name, used: n.LastUsed})
			state.bytes += slot
		}
	}
	kept := map[digest.Digest]bool{}
	for repo, sums := range tops {
		for d := range store.under(repo, slices.Values(sums)) {
			kept[d.Digest] = !store.depot.own(repo) || !store.depot.copyLocked(d.Digest)
		}
	}
	for sum := range k.describingLocked(tops) {
		kept[sum] = true
	}
	for _, g := range store.grants {
		for d := range g {
			kept[d] = true
		}
	}
	blobs, _ := blobsOf(store)
	for d, st := range blobs {
		if !kept[d] {
			state.refs[d] = 0
			state.bytes += slots(st.Size())
		}
	}
	partial, _ := os.ReadDir(filepath.Join(store.dir, "partial"))
	for _, e := range partial {
		if st, err := e.Info(); err == nil && store.flights[e.Name()] == nil {
			state.bytes += slots(st.Size())
		}
	}
	for _, f := range store.flights {
		state.bytes += slots(f.desc.Size)
	}
	for i := range state.names {
		n := &state.names[i]
		for d := range store.under(repoOf(n.key), slices.Values([]digest.Digest{store.names[n.key].Digest})) {
			if _, may := state.refs[d.Digest]; may {
				state.refs[d.Digest]++
				n.blobs = append(n.blobs, d.Digest)
			}
		}
	}
	return state
}

// describingLocked gives the manifests and configs of the images in a depot: without them nobody knows what these consist of.
func (k *Cache) describingLocked(tops map[imageref.Ref][]digest.Digest) map[digest.Digest]bool {
	out := map[digest.Digest]bool{}
	for repo, sums := range tops {
		for _, top := range sums {
			if !k.s.depot.own(repo) {
				continue
			}
			for sum := range manifestsUnder(k.s, top) {
				out[sum] = true
				if m, err := k.s.readManifest(sum); err == nil && m.image != nil {
					out[m.image.Config.Digest] = true
				}
			}
		}
	}
	return out
}

// usedNow gives what something runs from, if room has to be made for so many bytes, and nil if not: whoever knows looks at all that runs,
// and the core waits meanwhile. The lock must not be held.
func (c *Cache) usedNow(need int64) map[digest.Digest]bool {
	c.s.mu.Lock()
	fits := c.s.o.MaxCache <= 0 || c.fitsLocked(need)
	c.s.mu.Unlock()
	if fits {
		return nil
	}
	return c.askUsed()
}

// askUsed gives what something runs from, never nil. The lock must not be held.
func (c *Cache) askUsed() map[digest.Digest]bool {
	c.s.mu.Lock()
	list := c.inUse
	c.s.mu.Unlock()
	used := map[digest.Digest]bool{}
	if list != nil {
		for _, d := range list() {
			used[d] = true
		}
	}
	return used
}

// fitsLocked reports whether so many bytes more fit in, at first sight.
func (c *Cache) fitsLocked(need int64) bool { return c.totalLocked()+slots(need) <= c.s.o.MaxCache }

// totalLocked sums all blobs, and those that come. It reads no manifest.
func (c *Cache) totalLocked() (sum int64) {
	s := c.s
	for _, dir := range []string{"blobs/sha256", "blobs/sha512", "partial"} {
		list, _ := os.ReadDir(filepath.Join(s.dir, dir))
		for _, e := range list {
			if st, err := e.Info(); err == nil {
				sum += slots(st.Size())
			}
		}
	}
	return sum + c.comingLocked() + slot*int64(len(s.names))
}

func (c *Cache) comingLocked() (sum int64) {
	for _, f := range c.s.flights {
		sum += slots(f.desc.Size)
	}
	return sum
}

// makeRoom is makeRoomLocked for something that is stored at once.
func (c *Cache) makeRoom(need int64) error {
	room := func(used map[digest.Digest]bool) error {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		return c.makeRoomLocked(need, used)
	}
	err := room(c.usedNow(need))
	if errors.Is(err, errNotAsked) {
		err = room(c.askUsed())
	}
	return err
}

// makeRoomLocked has so many bytes of another registry fit in: parts of broken transfers and what has no name go first, then names, the
// longest unused first, and last those that something runs from, which can be fetched again. Nothing goes for what would not fit even then.
// With used nil it returns errNotAsked where something would go: others may have come since there was room.
func (k *Cache) makeRoomLocked(need int64, used map[digest.Digest]bool) error {
	store := k.s
	if store.o.MaxCache <= 0 {
		return nil
	}
	most := store.o.MaxCache
	if need > maxManifest {
		most -= most / keptForSmall
	}
	if slots(need) > most {
		return fmt.Errorf("%w: %d bytes do not fit into the %d that this cache of other registries may have; the operator raises that with --image-cache", ErrFull, need, store.o.MaxCache)
	} else if slots(need) > most-k.comingLocked() {
		return errBusy
	}
	if k.fitsLocked(need) {
		return nil
	}
	state := k.sumLocked()
	state.bytes += slots(need)
	if state.bytes <= store.o.MaxCache {
		return nil
	}
	if used == nil {
		return errNotAsked
	}
	store.changes++
	partial, _ := os.ReadDir(filepath.Join(store.dir, "partial"))
	for _, e := range partial {
		if st, err := e.Info(); err == nil && store.flights[e.Name()] == nil && os.Remove(filepath.Join(store.dir, "partial", e.Name())) == nil {
			state.bytes -= slots(st.Size())
		}
	}
	drop := func(d digest.Digest) {
		if n, here := store.hasBlob(d); here && store.pins[d] == 0 && store.proofs.removeBlob(d) == nil {
			state.bytes -= slots(n)
		}
	}
	for d, n := range state.refs {
		if n == 0 && state.bytes > store.o.MaxCache {
			drop(d)
		}
	}
	for i := range state.names {
		state.names[i].inUse = used[store.names[state.names[i].key].Digest]
	}
	slices.SortFunc(state.names, func(a, b cachedName) int {
		if a.inUse != b.inUse {
			return map[bool]int{true: 1, false: -1}[a.inUse]
		}
		return cmp.Or(a.used.Compare(b.used), strings.Compare(a.key, b.key))
	})
	gone := false
	for _, n := range state.names {
		if state.bytes <= store.o.MaxCache {
			break
		}
		if !n.kept {
			delete(store.names, n.key)
			k.evicted++
			gone = true
			state.bytes -= slot
		}
		for _, d := range n.blobs {
			if state.refs[d]--; state.refs[d] == 0 {
				drop(d)
			}
		}
	}
	if gone {
		if err := store.saveNamesLocked(); err != nil {
			store.dirty = true // fewer names need no more room, but a new file does
		}
	}
	if state.bytes > store.o.MaxCache {
		return errBusy // running calls rely on the rest
	}
	return nil
}

// KeepInUse has makeRoom spare what something runs from as long as there is something else.
func (c *Cache) KeepInUse(digests func() []digest.Digest) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.inUse = digests
}
