package artifact

import (
	"bufio"
	"compress/bzip2"
	"context"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/internal/files"
)

// unpack is one layer being unpacked, whoever waits for it.
type unpack struct {
	blob digest.Digest
	done chan struct{}
	err  error
}

// layerID is the folder name of an unpacked layer: 130 bits of its diff ID, short because a mount takes only a page of
// names.
func layerID(diffID digest.Digest) string {
	raw, err := hex.DecodeString(diffID.Encoded())
	if err != nil {
		return ""
	}
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(raw))[:26]
}

// provenIn is the file in the folder of an unpacked layer which says that a blob holds that layer.
func provenIn(dir string, blob digest.Digest) string {
	return filepath.Join(dir, "from", blob.Encoded())
}

// unpackLayer gives the folder of a layer, unpacking it if need be. The same layer is unpacked once at a time. A layer that is there is
// given only for a blob that was found to hold it: a config may name any diff ID, such as that of somebody else's layer.
func (s *Store) unpackLayer(ctx context.Context, blob, diffID digest.Digest) (string, error) {
	dir := filepath.Join(s.dir, "layers", layerID(diffID))
	defer s.pin(blob, diffID)()
	for {
		s.mu.Lock()
		if _, err := os.Lstat(provenIn(dir, blob)); err == nil {
			s.mu.Unlock()
			return filepath.Join(dir, "fs"), nil
		}
		if u := s.unpacks[diffID]; u != nil {
			s.mu.Unlock()
			select {
			case <-u.done:
			case <-ctx.Done():
				return "", ctx.Err()
			}
			if u.err != nil && u.blob == blob && !errors.Is(u.err, context.Canceled) && !errors.Is(u.err, context.DeadlineExceeded) {
				return "", u.err
			}
			continue
		}
		u := &unpack{blob: blob, done: make(chan struct{})}
		s.unpacks[diffID] = u
		s.mu.Unlock()
		if _, err := os.Lstat(dir); err == nil {
			u.err = diskError(s.prove(ctx, blob, diffID, dir))
		} else {
			u.err = diskError(s.unpackTo(ctx, blob, diffID, dir))
		}
		s.mu.Lock()
		delete(s.unpacks, diffID)
		s.mu.Unlock()
		close(u.done)
		if u.err != nil {
			return "", u.err
		}
	}
}

// prove looks whether a blob holds a layer that is unpacked already, and notes it.
func (s *Store) prove(ctx context.Context, blob, diffID digest.Digest, dir string) error {
	err := s.readLayer(ctx, blob, diffID, func(r io.Reader) error {
		_, err := io.Copy(io.Discard, r)
		return err
	})
	if err != nil {
		return err
	}
	return noteProven(dir, blob)
}

func noteProven(dir string, blob digest.Digest) error {
	file := provenIn(dir, blob)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o600)
}

// readLayer has a layer's archive read, and refuses one that is not what the config says. A blob that was damaged meanwhile is removed.
func (s *Store) readLayer(ctx context.Context, blob, diffID digest.Digest, read func(io.Reader) error) error {
	err := readArchive(ctx, s, blob, diffID, read)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrNotFound) || errors.Is(diskError(err), ErrFull) {
		return err
	}
	if _, damage := intact(ctx, s, blob); errors.Is(damage, ErrDamaged) {
		return fmt.Errorf("layer %w", damage)
	}
	return err
}

func readArchive(ctx context.Context, store *Store, blob, diffID digest.Digest, read func(io.Reader) error) error {
	file, err := os.Open(store.blobPath(blob))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s: %w: pull the image again", blob, ErrNotFound)
		}
		return err
	}
	defer file.Close()
	plain, err := decompress(&ctxReader{ctx, file})
	if err != nil {
		return err
	}
	defer plain.Close()
	h := diffID.Algorithm().Digester()
	if err := read(io.TeeReader(&capReader{r: plain, left: store.o.MaxLayer}, h.Hash())); err != nil {
		return err
	}
	if h.Digest() != diffID {
		return fmt.Errorf("layer %s: %w: unpacked it is %s and the config says %s", blob, ErrDigest, h.Digest(), diffID)
	}
	return nil
}

func (s *Store) unpackTo(ctx context.Context, blob, diffID digest.Digest, dir string) error {
	if _, err := os.Lstat(s.blobPath(blob)); errors.Is(err, os.ErrNotExist) { // before anything is made
		return fmt.Errorf("%s: %w: pull the image again", blob, ErrNotFound)
	}
	tmp := s.tmpName("unpack-")
	defer func() { _ = os.RemoveAll(tmp) }() // gone already when all went well
	fsDir := filepath.Join(tmp, "fs")
	for _, d := range []string{tmp, fsDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(d, 0o755); err != nil { // whatever the umask
			return err
		}
	}
	if err := s.readLayer(ctx, blob, diffID, func(r io.Reader) error { return unpackTar(r, fsDir, s.o) }); err != nil {
		return err
	}
	if err := noteProven(tmp, blob); err != nil {
		return err
	}
	if err := syncTree(fsDir); err != nil {
		return err
	}
	if err := os.Rename(tmp, dir); err != nil {
		return err
	}
	return files.Sync(filepath.Dir(dir))
}

// decompress knows gzip, zstd and bzip2 by their first bytes and takes everything else for plain: media types are often
// wrong.
func decompress(in io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	head, err := b.Peek(4)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case len(head) >= 2 && head[0] == 0x1f && head[1] == 0x8b:
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return z, nil
	case string(head) == "\x28\xb5\x2f\xfd":
		// One goroutine and a bounded window: small machines unpack too.
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(64<<20))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return z.IOReadCloser(), nil
	case len(head) >= 3 && string(head[:3]) == "BZh":
		return io.NopCloser(bzip2.NewReader(b)), nil
	}
	return io.NopCloser(b), nil
}

// capReader gives an error instead of more than left bytes: a few kilobytes can unpack to a full disk.
type capReader struct {
	r    io.Reader
	left int64
}

func (c *capReader) Read(b []byte) (int, error) {
	if c.left < 0 {
		return 0, fmt.Errorf("layer: %w when unpacked", ErrTooLarge)
	}
	n, err := c.r.Read(b[:min(int64(len(b)), c.left+1)])
	if c.left -= int64(n); c.left < 0 {
		return n - 1, fmt.Errorf("layer: %w when unpacked", ErrTooLarge)
	}
	return n, err
}

type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}
