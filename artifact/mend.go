package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/files"
)

// ErrDamaged says that the medium has changed a blob. It is removed by then: a pull brings it again.
var ErrDamaged = errors.New("damaged on disk and removed")

// intact reports whether the file of a blob is what its digest says, unless it cannot be told.
func intact(ctx context.Context, s *Store, d digest.Digest) (bool, error) {
	f, err := os.Open(s.blobPath(d))
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := d.Algorithm().Digester()
	if _, err := io.Copy(h.Hash(), &ctxReader{ctx, f}); err != nil {
		if ctx.Err() != nil || errors.Is(err, fs.ErrPermission) {
			return false, err
		}
		return false, drop(s, f, d) // the medium cannot give it back
	}
	if h.Digest() == d {
		return true, nil
	}
	return false, drop(s, f, d)
}

// drop removes the file of a blob that was found to be damaged, unless another has taken its place, and gives ErrDamaged.
func drop(s *Store, f *os.File, d digest.Digest) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(s.blobPath(d)); err == nil && os.SameFile(st, now) {
		if err := os.Remove(s.blobPath(d)); err != nil {
			return err
		}
	}
	if s.o.Damaged != nil {
		s.o.Damaged(d)
	}
	return fmt.Errorf("%s: %w", d, ErrDamaged)
}

// Mend reads every byte of an image that is here for a platform: damaged blobs are fetched again, and damaged files of
// its unpacked layers are replaced one by one, so that what runs from the others goes on. It says what it has mended;
// an error is about what it could not.
func Mend(ctx context.Context, store *Store, ref string, platform Platform, sources ...*Source) (mended []string, err error) {
	r, err := imageref.Parse(ref)
	if err != nil {
		return nil, err
	}
	top := r.Digest
	if top == "" {
		var ok bool
		if top, ok = store.Lookup(r); !ok {
			return nil, &NotFoundError{Ref: r.Familiar(), Where: []string{"this store"}}
		}
		r = r.Pinned(top)
	}
	missing := false
	manifests, blobs := []digest.Digest{top}, []digest.Digest(nil)
	look := func(d digest.Digest) error {
		defer store.pin(d)()
		switch _, err := intact(ctx, store, d); {
		case errors.Is(err, ErrDamaged):
			mended, missing = append(mended, "blob "+d.String()), true
		case errors.Is(err, fs.ErrNotExist): // of another platform, or removed by whoever found it damaged before
			missing = true
		case err != nil:
			return err
		}
		return nil
	}
	for i := 0; i < len(manifests); i++ { // before they are read, which removes them
		if err := look(manifests[i]); err != nil {
			return mended, err
		}
		m, err := store.readManifest(manifests[i])
		if err != nil {
			continue
		}
		for _, c := range m.children() {
			if m.index != nil {
				manifests = append(manifests, c.Digest)
			} else {
				blobs = append(blobs, c.Digest)
			}
		}
	}
	for _, d := range blobs {
		if err := look(d); err != nil {
			return mended, err
		}
	}
	if missing {
		if _, err := store.Pull(ctx, r.String(), platform, nil, sources...); err != nil {
			return mended, fmt.Errorf("fetch what was damaged again: %w", err)
		}
	}
	img, err := store.Image(top, platform)
	if err != nil {
		return mended, err
	}
	for i := range img.layers {
		files, err := mendLayer(ctx, store, img.layers[i], img.diffIDs[i])
		for _, f := range files {
			mended = append(mended, fmt.Sprintf("/%s of layer %s", f, img.layers[i]))
		}
		if err != nil {
			return mended, err
		}
	}
	return mended, nil
}

// mendLayer compares an unpacked layer with the blob that holds it, and gives the names of what it has put right.
func mendLayer(ctx context.Context, store *Store, blob, diffID digest.Digest) (names []string, err error) {
	dir := filepath.Join(store.dir, "layers", layerID(diffID))
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // it is unpacked when it is needed
	}
	defer store.pin(blob, diffID)()
	tmp := store.tmpName("mend-")
	defer func() { _ = os.RemoveAll(tmp) }()
	want := filepath.Join(tmp, "fs")
	for _, d := range []string{tmp, want} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, diskError(err)
		}
		if err := os.Chmod(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := store.readLayer(ctx, blob, diffID, func(r io.Reader) error { return unpackTar(r, want, store.o) }); err != nil {
		return nil, diskError(err)
	}
	m := &mending{want: want, have: filepath.Join(dir, "fs"), ctx: ctx}
	if err := m.folder("."); err != nil {
		return m.names, diskError(err)
	}
	copied, err := mendCopies(ctx, dir, tmp)
	return append(m.names, copied...), diskError(err)
}

// mending makes one tree what another is. It takes what it needs out of the other.
type mending struct {
	ctx        context.Context
	want, have string
	names      []string // of what it changed
}

// folder mends a folder that both trees have.
func (m *mending) folder(name string) error {
	if err := m.ctx.Err(); err != nil {
		return err
	}
	want, err := os.ReadDir(filepath.Join(m.want, name))
	if err != nil {
		return err
	}
	have, err := os.ReadDir(filepath.Join(m.have, name))
	if err != nil {
		return err
	}
	changed := false
	for _, e := range have {
		if !slices.ContainsFunc(want, func(w fs.DirEntry) bool { return w.Name() == e.Name() }) {
			at := filepath.Join(name, e.Name())
			if err := os.RemoveAll(filepath.Join(m.have, at)); err != nil {
				return err
			}
			m.names, changed = append(m.names, at), true
		}
	}
	for _, e := range want {
		at := filepath.Join(name, e.Name())
		from, to := filepath.Join(m.want, at), filepath.Join(m.have, at)
		switch same, err := alike(m.ctx, from, to); {
		case err != nil:
			return err
		case same && e.IsDir():
			if err := m.folder(at); err != nil {
				return err
			}
		case !same:
			if err := m.replace(from, to, e.IsDir()); err != nil {
				return err
			}
			m.names, changed = append(m.names, at), true
		}
	}
	if !changed {
		return nil
	}
	return files.Sync(filepath.Join(m.have, name))
}

// replace puts a file, or a whole folder, in another's place. Who has the old file open keeps it.
func (m *mending) replace(from, to string, dir bool) error {
	if st, err := os.Lstat(to); err == nil && (dir || st.IsDir()) {
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
	if err := syncTree(filepath.Dir(from)); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// alike compares two things of the same name, folders without what is in them. What cannot be read is not alike.
func alike(ctx context.Context, want, have string) (bool, error) {
	a, err := os.Lstat(want)
	if err != nil {
		return false, err
	}
	b, err := os.Lstat(have)
	if err != nil {
		return false, nil //nolint:nilerr // it is replaced
	}
	if a.Mode() != b.Mode() || !sameOwner(a, b) || !sameAttributes(want, have) {
		return false, nil
	}
	switch {
	case a.Mode().IsRegular():
		if a.Size() != b.Size() {
			return false, nil
		}
		return sameContent(ctx, want, have)
	case a.Mode()&fs.ModeSymlink != 0:
		x, err := os.Readlink(want)
		if err != nil {
			return false, err
		}
		y, err := os.Readlink(have)
		return err == nil && x == y, nil
	}
	return true, nil
}

func sameContent(ctx context.Context, want, have string) (bool, error) {
	a, err := os.Open(want)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, err := os.Open(have)
	if err != nil {
		return false, nil //nolint:nilerr // it is replaced
	}
	defer b.Close()
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		n, err := io.ReadFull(a, x)
		k, _ := io.ReadFull(b, y)
		if n != k || !bytes.Equal(x[:n], y[:k]) {
			return false, nil
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}
