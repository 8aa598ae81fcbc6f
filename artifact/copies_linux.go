package artifact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/owners"
)

// copyDigits is how long the name of a copy is, the number of its first user in base 16.
const copyDigits = 8

func copyName(first uint32) string { return fmt.Sprintf("%0*x", copyDigits, first) }

// copiesIn gives the copies in the folder of a layer, by their first users.
func copiesIn(dir string) (out []uint32) {
	list, _ := os.ReadDir(dir)
	for _, e := range list {
		if n, err := strconv.ParseUint(e.Name(), 16, 32); err == nil && len(e.Name()) == copyDigits && e.IsDir() {
			out = append(out, uint32(n))
		}
	}
	return out
}

// RootFS gives the layers of an image as the store's own RootFS does, but of files that belong to the users of the host
// from first on: user 0 of the image is first. It makes what copies there are not.
func (c *Copies) RootFS(ctx context.Context, d digest.Digest, p Platform, first uint32) ([]string, error) {
	s := c.s
	img, err := s.Image(d, p)
	if err != nil {
		return nil, err
	}
	// None of them goes before the image is in use, and has been since.
	defer s.pin(img.diffIDs...)()
	dirs, err := Unpack(ctx, s, img)
	if err != nil {
		return nil, err
	}
	for i, dir := range dirs {
		if dirs[i], err = c.layer(ctx, filepath.Dir(dir), first); err != nil {
			return nil, fmt.Errorf("copy layer %d of %s for users from %d: %w", len(dirs)-1-i, d, first, diskError(err))
		}
	}
	return dirs, nil
}

// layer gives the copy of an unpacked layer, making it if need be, once at a time. One that is there is whole.
func (c *Copies) layer(ctx context.Context, layer string, first uint32) (string, error) {
	store := c.s
	dir := filepath.Join(layer, copyName(first))
	for {
		store.mu.Lock()
		if st, err := os.Lstat(dir); err == nil {
			if usedBefore(dir, time.Now().Add(-noteUseAfter)) {
				sys := st.Sys().(*syscall.Stat_t)
				err = os.Lchown(dir, int(sys.Uid), int(sys.Gid))
			}
			store.mu.Unlock()
			return dir, err
		}
		if other := c.making[dir]; other != nil {
			store.mu.Unlock()
			select {
			case <-other:
				continue
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		done := make(chan struct{})
		c.making[dir] = done
		store.mu.Unlock()
		err := c.make(ctx, layer, dir, first)
		store.mu.Lock()
		delete(c.making, dir)
		store.mu.Unlock()
		close(done)
		return dir, err
	}
}

func (c *Copies) make(ctx context.Context, layer, dir string, first uint32) error {
	tmp := c.s.tmpName("shift-")
	defer func() { _ = os.RemoveAll(tmp) }() // gone already when all went well
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	if err := owners.Copy(ctx, filepath.Join(layer, "fs"), tmp, first); err != nil {
		return err
	}
	if err := syncTree(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return files.Sync(layer)
}

// mendCopies puts right what is damaged in the copies of a layer, which itself is whole, and gives the names of that. It works in a folder
// that the caller removes.
func mendCopies(ctx context.Context, layer, tmp string) (names []string, err error) {
	for _, first := range copiesIn(layer) {
		m := &mending{want: filepath.Join(tmp, copyName(first)), have: filepath.Join(layer, copyName(first)), ctx: ctx}
		if err := os.Mkdir(m.want, 0o700); err != nil {
			return names, err
		}
		if err := owners.Copy(ctx, filepath.Join(layer, "fs"), m.want, first); err != nil {
			return names, err
		}
		err := m.folder(".")
		for _, name := range m.names {
			names = append(names, fmt.Sprintf("%s (for users from %d)", name, first))
		}
		if err != nil {
			return names, err
		}
	}
	return names, nil
}

// Users gives the first users for which there are copies, each once.
func (c *Copies) Users() (out []uint32) {
	layers, _ := os.ReadDir(filepath.Join(c.s.dir, "layers"))
	for _, l := range layers {
		out = append(out, copiesIn(filepath.Join(c.s.dir, "layers", l.Name()))...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Drop removes copies for users that need none of the images that inUse has for them, if they were not used since before.
func (c *Copies) Drop(inUse map[uint32][]digest.Digest, before time.Time) (freed int64, err error) {
	used := map[string]bool{}
	for first, digests := range inUse {
		live, layers := map[digest.Digest]bool{}, map[string]bool{}
		for _, d := range digests {
			reach(c.s, d, live, layers)
		}
		for id := range layers {
			used[filepath.Join(id, copyName(first))] = true
		}
	}
	gone, err := c.take(used, before)
	for _, dir := range gone { // without the lock: trees are large
		freed += treeSize(dir)
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return freed, err
}

// take renames copies away that nobody uses: half of one must not look whole.
func (c *Copies) take(used map[string]bool, before time.Time) (gone []string, err error) {
	store := c.s
	store.mu.Lock()
	defer store.mu.Unlock()
	pinned := map[string]bool{}
	for d := range store.pins {
		pinned[layerID(d)] = true
	}
	layers, err := os.ReadDir(filepath.Join(store.dir, "layers"))
	for _, l := range layers {
		for _, first := range copiesIn(filepath.Join(store.dir, "layers", l.Name())) {
			name := filepath.Join(l.Name(), copyName(first))
			at := filepath.Join(store.dir, "layers", name)
			if used[name] || pinned[l.Name()] || !usedBefore(at, before) {
				continue
			}
			to := store.tmpName("shifted-")
			if err := os.Rename(at, to); err != nil {
				return gone, err
			}
			gone = append(gone, to)
		}
	}
	return gone, err
}

// noteUseAfter is how often it is noted that a copy is used. That is a write.
const noteUseAfter = 30 * time.Minute

// usedBefore tells by when the inode of a copy was changed last: its other times are the image's own.
func usedBefore(dir string, at time.Time) bool {
	st, err := os.Lstat(dir)
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && time.Unix(sys.Ctim.Unix()).Before(at)
}
