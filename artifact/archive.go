package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// refAnnotation is where OCI layouts keep a whole name; containerd's has precedence, for it is never just a tag.
const containerdName = "io.containerd.image.name"

// Export writes images as one OCI layout in a tar, which Import and other tools read. Of an index, the platforms that
// are here are written. The same images give the same bytes.
func (s *Store) Export(ctx context.Context, out io.Writer, refs ...string) error {
	if len(refs) == 0 {
		return errors.New("export: name an image")
	}
	idx := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex}
	memory := map[digest.Digest][]byte{}
	sizes := map[digest.Digest]int64{}
	for _, ref := range refs {
		r, err := imageref.Parse(ref)
		if err != nil {
			return err
		}
		sum, ok := s.Lookup(r)
		if !ok {
			return &NotFoundError{Ref: r.Familiar(), Where: []string{"this store"}}
		}
		m, parts, err := s.exportable(sum)
		if err != nil {
			return fmt.Errorf("export %s: %w", r.Familiar(), err)
		}
		desc := m.desc
		desc.Annotations = map[string]string{containerdName: r.String()}
		if r.Tag != "" {
			desc.Annotations[ocispec.AnnotationRefName] = r.Tag
		}
		idx.Manifests = append(idx.Manifests, desc)
		for _, part := range append(parts, m) {
			memory[part.desc.Digest] = part.raw
			if part.image != nil {
				for _, c := range part.children() {
					sizes[c.Digest] = c.Size
				}
			}
		}
	}
	var all []digest.Digest
	for sum := range memory {
		all = append(all, sum)
	}
	for sum := range sizes {
		all = append(all, sum)
	}
	defer s.pin(all...)()
	slices.Sort(all)
	t := tar.NewWriter(out)
	put := func(name string, size int64, r io.Reader) error {
		h := &tar.Header{Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := io.Copy(t, &ctxReader{ctx, r})
		return err
	}
	layout, index := mustJSON(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}), mustJSON(idx)
	if err := put(ocispec.ImageLayoutFile, int64(len(layout)), readerOf(layout)); err != nil {
		return fmt.Errorf("export: %w", diskError(err))
	}
	if err := put(ocispec.ImageIndexFile, int64(len(index)), readerOf(index)); err != nil {
		return fmt.Errorf("export: %w", diskError(err))
	}
	for _, sum := range slices.Compact(all) {
		name := "blobs/" + sum.Algorithm().String() + "/" + sum.Encoded()
		var err error
		if raw, ok := memory[sum]; ok {
			err = put(name, int64(len(raw)), readerOf(raw))
		} else {
			err = func() error {
				f, err := os.Open(s.blobPath(sum))
				if err != nil {
					return err
				}
				defer f.Close()
				return put(name, sizes[sum], f)
			}()
		}
		if err != nil {
			return fmt.Errorf("export %s: %w", sum, diskError(err))
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("export: %w", diskError(err))
	}
	return nil
}
