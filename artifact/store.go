package artifact

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/files"
)

// Options for Open. The zero value is usable.
type Options struct {
	// MaxLayer is how many bytes one layer may have when unpacked; 0 means 32 GiB. MaxEntries is its number of files; 0
	// means a million.
	MaxLayer   int64
	MaxEntries int
	// MaxCache bounds what is kept of registries other than Local, whose images are the store's own unless they came from another one; 0 is
	// no bound.
	MaxCache int64
	Local    string
	// Depot, if set, has the images of Local; those on the disk are copies, which MaxCache bounds as well. See LoadDepot.
	Depot Depot
	// Ledger, if set, has the names of Local's images in place of a depot.
	Ledger *Ledger
	// AllowDevices lets layers bring device nodes. Without it such an image is refused.
	AllowDevices bool
	// Damaged is told of blobs that the medium has changed, when they have been removed; nil: nobody is.
	Damaged func(digest.Digest)
	// Aside is told of a damaged list of names, which is set aside as this file: the store is a cache, and its images can be had again. nil:
	// such a store does not open.
	Aside func(file string, err error)
	// Now is the clock for last use and age; nil means time.Now.
	Now func() time.Time
}

// Store is a folder of images:
//
//	blobs/sha256/HEX   manifests, configs, layers as they came; complete and verified; blobs/sha512 alike
//	partial/NAME       blobs on their way, continued after a break
//	proven/HEX/NAME    which repositories were found to have a blob
//	layers/ID/fs       unpacked layers, in the form overlayfs wants
//	layers/ID/FIRST    the same for the users of the host from FIRST on, in eight digits of base 16
//	names.json         which name means which digest
//	depot              which depot has all images that were here when it was first used
//	tmp/               what must not survive a crash; emptied by Open
//
// One process uses it at a time. All methods may be called concurrently.
type Store struct {
	Cache  *Cache
	Copies *Copies

	dir   string
	o     Options
	lock  *os.File
	depot *depot // nil: there is none

	namings turns // one name is changed by one at a time; before mu

	mu      sync.Mutex
	names   map[string]name                        // key: Ref.String() with a tag or a digest
	dirty   bool                                   // names.json lags behind in lastUsed only
	pins    map[digest.Digest]int                  // blobs that running calls rely on; Prune leaves them
	flights map[string]*flight                     // blobs on their way, by the names of their files
	unpacks map[digest.Digest]*unpack              // layers being unpacked, by diff ID
	grants  map[string]map[digest.Digest]time.Time // uploaded to a repository and not named yet, since
	asked   map[digest.Digest]time.Time            // blobs that a client was told are here, since: it may be about to name them
	changes uint64                                 // counts what changes names or grants
	closed  bool
	proofs  proofs
	running sync.WaitGroup // flights
}

// name is what the index keeps of one name.
type name struct {
	Digest   digest.Digest `json:"digest"`
	Added    time.Time     `json:"added"`
	LastUsed time.Time     `json:"lastUsed"`
	Pushed   bool          `json:"pushed,omitempty"` // by a client, to a registry that serves this store
	Cached   bool          `json:"cached,omitempty"` // it came from another registry, which has it
	Life     string        `json:"life,omitempty"`   // of the ledger that has it; without one it is on this disk alone
}

// Open opens or makes the store in dir and clears away what a crash left.
func Open(dir string, opt Options) (*Store, error) {
	if opt.MaxLayer == 0 {
		opt.MaxLayer = 32 << 30
	}
	if opt.MaxEntries == 0 {
		opt.MaxEntries = 1_000_000
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	store := &Store{dir: dir, o: opt, names: map[string]name{}, pins: map[digest.Digest]int{}, flights: map[string]*flight{},
		unpacks: map[digest.Digest]*unpack{}, grants: map[string]map[digest.Digest]time.Time{}, asked: map[digest.Digest]time.Time{}}
	store.Cache, store.Copies, store.proofs = &Cache{s: store}, &Copies{s: store, making: map[string]chan struct{}{}}, proofs{store}
	switch {
	case opt.Ledger != nil:
		store.depot = newLedger(store, opt.Ledger)
	case opt.Depot != nil:
		store.depot = newDepot(store, opt.Depot)
	}
	_, err = os.Lstat(filepath.Join(dir, "blobs", "sha512"))
	earlier := errors.Is(err, fs.ErrNotExist) // this store is new, or of a version that did not note when a tag moved on
	for _, d := range []string{".", "blobs/sha256", "partial", "layers", "empty"} {
		// Readable for the image's own user in a container; the files inside decide further. blobs stay private.
		mode := fs.FileMode(0o711)
		if strings.HasPrefix(d, "blobs/") || d == "partial" {
			mode = 0o700
		}
		if err := os.MkdirAll(filepath.Join(dir, d), mode); err != nil {
			return nil, fmt.Errorf("image store %s: %w", dir, diskError(err))
		}
	}
	if store.lock, err = lockDir(filepath.Join(dir, "lock")); err != nil {
		return nil, fmt.Errorf("image store %s: %w", dir, err)
	}
	err = store.recover()
	if err == nil && earlier {
		// Where nothing can be written, it is done at the next start.
		if err = renew(store); errors.Is(err, syscall.EROFS) {
			err = nil
		}
	}
	if err != nil {
		store.lock.Close()
		return nil, fmt.Errorf("image store %s: %w", dir, diskError(err))
	}
	return store, nil
}

func (s *Store) recover() error {
	// Where nothing can be written, what is left goes at the next start.
	err := os.RemoveAll(filepath.Join(s.dir, "tmp"))
	if err == nil {
		err = os.Mkdir(filepath.Join(s.dir, "tmp"), 0o711)
	}
	if err != nil && !errors.Is(err, syscall.EROFS) {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(s.dir, "names.json"))
	if err == nil {
		err = s.loadNames(raw)
	}
	if errors.Is(err, errNames) && s.o.Aside != nil {
		clear(s.names)
		file := filepath.Join(s.dir, "names.json.damaged")
		s.o.Aside(file, err)
		err = os.Rename(filepath.Join(s.dir, "names.json"), file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.proofs.adopt()
}

// renew has what was pushed to a store of an earlier version count as used now: Collect would take an image for old that lost its tag
// yesterday. The folder for digests by SHA-512, which such a store does not have, says that it was done.
func renew(s *Store) error {
	now := s.o.Now().UTC()
	for k, n := range s.names {
		if s.Cache.own(k, n) {
			n.LastUsed = now
			s.names[k], s.dirty = n, true
		}
	}
	if s.dirty {
		if err := s.saveNamesLocked(); err != nil && !errors.Is(err, ErrFull) {
			return err
		}
	}
	return os.MkdirAll(filepath.Join(s.dir, "blobs", "sha512"), 0o700)
}

// Close stops transfers, which stay to be resumed, and releases the folder. It is idempotent.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for _, f := range s.flights {
		f.cancel()
	}
	dirty := s.dirty
	s.mu.Unlock()
	s.running.Wait()
	var err error
	if dirty {
		s.mu.Lock()
		err = s.saveNamesLocked()
		s.mu.Unlock()
	}
	return errors.Join(err, s.lock.Close())
}

func (s *Store) blobPath(d digest.Digest) string {
	return filepath.Join(s.dir, "blobs", d.Algorithm().String(), d.Encoded())
}

// blobsOf lists what is in the folders of blobs.
func blobsOf(s *Store) (map[digest.Digest]fs.FileInfo, error) {
	out := map[digest.Digest]fs.FileInfo{}
	for _, a := range imageref.Algorithms() {
		list, err := os.ReadDir(filepath.Join(s.dir, "blobs", a.String()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range list {
			if st, err := e.Info(); err == nil {
				out[digest.NewDigestFromEncoded(a, e.Name())] = st
			}
		}
	}
	return out, nil
}

func (s *Store) hasBlob(d digest.Digest) (size int64, ok bool) {
	st, err := os.Stat(s.blobPath(d))
	if err != nil {
		return 0, false
	}
	return st.Size(), true
}

// pin keeps blobs from Prune until the function it gives is called.
func (s *Store) pin(ds ...digest.Digest) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		s.pins[d]++
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, d := range ds {
				if s.pins[d]--; s.pins[d] <= 0 {
					delete(s.pins, d)
				}
			}
		})
	}
}

// readBlob gives a small blob, verified again.
func (s *Store) readBlob(d digest.Digest) ([]byte, error) { return readBlobUpTo(s, d, maxManifest) }

func readBlobUpTo(store *Store, sum digest.Digest, limit int64) ([]byte, error) {
	if _, err := imageref.ParseDigest(sum.String()); err != nil {
		return nil, err
	}
	f, err := os.Open(store.blobPath(sum))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s: %w", sum, ErrNotFound)
		}
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: %w", sum, ErrTooLarge)
	}
	if sum.Algorithm().FromBytes(b) != sum {
		// The medium has changed it: better to fetch it again than to fail for ever.
		return nil, fmt.Errorf("%w: %w", ErrNotFound, drop(store, f, sum))
	}
	return b, nil
}

func (s *Store) readManifest(d digest.Digest) (*manifest, error) {
	b, err := s.readBlob(d)
	if err != nil {
		return nil, err
	}
	return parseManifestAs(b, d)
}

// putBlob stores bytes that are in memory under their digest, which must be want unless that is empty.
func (s *Store) putBlob(b []byte, want digest.Digest) (digest.Digest, error) {
	w, err := s.newBlob()
	if err != nil {
		return "", err
	}
	defer w.discard()
	if _, err := w.Write(b); err != nil {
		return "", err
	}
	return w.commit(want)
}

// blobWriter writes a blob whose digest is known at its end.
type blobWriter struct {
	s *Store
	f *os.File
	h digest.Digester
	n int64
}

func (s *Store) newBlob() (*blobWriter, error) {
	f, err := os.OpenFile(s.tmpName("blob-"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, diskError(err)
	}
	return &blobWriter{s: s, f: f, h: digest.Canonical.Digester()}, nil
}

func (w *blobWriter) Write(b []byte) (int, error) {
	n, err := w.f.Write(b)
	w.h.Hash().Write(b[:n])
	w.n += int64(n)
	return n, diskError(err)
}

// commit makes the blob durable under its digest, which must be want unless that is empty.
func (w *blobWriter) commit(want digest.Digest) (digest.Digest, error) {
	d := w.h.Digest()
	if want != "" && want.Algorithm() != d.Algorithm() {
		// A client says only at the end of an upload which algorithm counts.
		h := want.Algorithm().Digester()
		if _, err := w.f.Seek(0, io.SeekStart); err != nil {
			return "", diskError(err)
		}
		if _, err := io.Copy(h.Hash(), w.f); err != nil {
			return "", diskError(err)
		}
		d = h.Digest()
	}
	if want != "" && d != want {
		return "", fmt.Errorf("%s: %w: it is %s", want, ErrDigest, d)
	}
	return d, w.s.adopt(w.f, d)
}

// discard removes what was not committed.
func (w *blobWriter) discard() {
	w.f.Close()
	os.Remove(w.f.Name())
}

// adopt moves a verified file to its place.
func (s *Store) adopt(f *os.File, d digest.Digest) error {
	if err := f.Sync(); err != nil {
		return diskError(err)
	}
	if err := os.Rename(f.Name(), s.blobPath(d)); err != nil {
		return diskError(err)
	}
	return diskError(files.Sync(filepath.Dir(s.blobPath(d))))
}

func (s *Store) tmpName(prefix string) string {
	return filepath.Join(s.dir, "tmp", prefix+strings.ToLower(rand.Text()))
}
