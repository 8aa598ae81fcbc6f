package artifact

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
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

// Import reads a tar with an OCI layout, or one of `docker save`, and gives the names it set. Nothing is named unless
// all that it holds is whole. A layout without names needs fallback, which must be empty or name the only image.
func (s *Store) Import(ctx context.Context, in io.Reader, fallback string) ([]string, error) {
	plain, err := decompress(&ctxReader{ctx, in}) // people compress them
	if err != nil {
		return nil, fmt.Errorf("import: %w", err)
	}
	defer plain.Close()
	im := &importer{s: s, files: map[string]digest.Digest{}, links: map[string]string{}, small: map[string][]byte{}}
	defer im.release()
	if err := im.read(plain); err != nil {
		return nil, fmt.Errorf("import: %w", diskError(err))
	}
	names, err := im.resolve()
	if err != nil {
		return nil, fmt.Errorf("import: %w", diskError(err))
	}
	if fallback != "" {
		ref, err := imageref.Parse(fallback)
		if err != nil {
			return nil, err
		}
		if len(names) != 1 {
			return nil, fmt.Errorf("import: the archive holds %d images, and one name was given; import it without", len(names))
		}
		names[0].ref = ref
	}
	var out []string
	for _, n := range names {
		if n.ref == (imageref.Ref{}) {
			return nil, fmt.Errorf("import: image %s has no name in the archive; give one", n.d)
		}
	}
	for _, n := range names {
		for _, d := range im.files {
			if err := s.proofs.note(n.ref, d); err != nil {
				return out, fmt.Errorf("import: %w", err)
			}
		}
		if err := s.setName(n.ref, n.d); err != nil {
			return out, fmt.Errorf("import: %w", err)
		}
		out = append(out, n.ref.String())
	}
	return out, nil
}

type named struct {
	ref imageref.Ref
	d   digest.Digest
}

// importer keeps every file of the archive as a blob, pinned, until it is known what it is for.
type importer struct {
	s     *Store
	files map[string]digest.Digest // by path in the archive
	links map[string]string
	small map[string][]byte // index.json and manifest.json
	pins  []func()
	total int64
}

// What an archive may hold.
const (
	maxArchiveFiles = 100_000
	maxArchiveBytes = 1 << 40
)

func (im *importer) release() {
	for _, p := range im.pins {
		p()
	}
}

func (im *importer) read(in io.Reader) error {
	t := tar.NewReader(in)
	for n := 0; ; n++ {
		header, err := t.Next()
		if err == io.EOF {
			if n == 0 {
				return fmt.Errorf("%w: the archive is empty", ErrInvalid)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: the archive is no tar or is damaged: %w", ErrInvalid, err)
		}
		if im.total += header.Size; n >= maxArchiveFiles || header.Size < 0 || im.total > maxArchiveBytes {
			return fmt.Errorf("archive: %w", ErrTooLarge)
		}
		name, err := cleanArchive(header.Name)
		if err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeReg:
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeSymlink: // docker save links equal layers
			to, err := cleanArchive(path.Join(path.Dir(name), header.Linkname))
			if err != nil || path.IsAbs(header.Linkname) {
				return fmt.Errorf("%w: %.200q links out of the archive", ErrInvalid, header.Name)
			}
			im.links[name] = to
			continue
		case tar.TypeLink:
			if im.links[name], err = cleanArchive(header.Linkname); err != nil {
				return err
			}
			continue
		default:
			return fmt.Errorf("%w: %.200q is no file", ErrInvalid, header.Name)
		}
		if name == ocispec.ImageIndexFile || name == "manifest.json" {
			if header.Size > maxManifest {
				return fmt.Errorf("%s: %w", name, ErrTooLarge)
			}
			if im.small[name], err = io.ReadAll(t); err != nil {
				return fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			continue
		}
		if err := im.blob(name, t); err != nil {
			return fmt.Errorf("%.200q: %w", header.Name, err)
		}
	}
}

func (im *importer) blob(name string, in io.Reader) error {
	w, err := im.s.newBlob()
	if err != nil {
		return err
	}
	defer w.discard()
	if _, err := io.Copy(w, in); err != nil {
		return err
	}
	want := digest.Digest("")
	if rest, ok := strings.CutPrefix(name, "blobs/"); ok && strings.Contains(rest, "/") {
		if want, err = imageref.ParseDigest(strings.Replace(rest, "/", ":", 1)); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	im.pins = append(im.pins, im.s.pin(cmp.Or(want, w.h.Digest())))
	d, err := w.commit(want)
	if err != nil {
		return err
	}
	im.files[name] = d
	return nil
}

func cleanArchive(name string) (string, error) {
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: %.200q leads out of the archive", ErrInvalid, name)
		}
	}
	return strings.TrimPrefix(path.Clean("/"+name), "/"), nil
}

func (im *importer) file(name string) (digest.Digest, error) {
	name, err := cleanArchive(name)
	if err != nil {
		return "", err
	}
	for range 10 {
		if d, ok := im.files[name]; ok {
			return d, nil
		}
		to, ok := im.links[name]
		if !ok {
			break
		}
		name = to
	}
	return "", fmt.Errorf("%w: the archive lacks %.200q", ErrInvalid, name)
}

func (im *importer) resolve() ([]named, error) {
	if raw, ok := im.small[ocispec.ImageIndexFile]; ok {
		return im.layout(raw)
	}
	if raw, ok := im.small["manifest.json"]; ok {
		return im.docker(raw)
	}
	return nil, fmt.Errorf("%w: the archive has neither index.json nor manifest.json; make it with `skerry image export` or `docker save`", ErrInvalid)
}

func (im *importer) layout(raw []byte) ([]named, error) {
	top, err := parseManifest(raw)
	if err != nil {
		return nil, err
	}
	if top.index == nil {
		return nil, fmt.Errorf("%w: index.json is no index", ErrInvalid)
	}
	var out []named
	for _, d := range top.index.Manifests {
		if err := im.complete(d.Digest, 0); err != nil {
			return nil, err
		}
		n := named{d: d.Digest}
		name := d.Annotations[containerdName]
		if name == "" && strings.ContainsAny(d.Annotations[ocispec.AnnotationRefName], "/:") {
			name = d.Annotations[ocispec.AnnotationRefName]
		}
		if name != "" {
			if n.ref, err = imageref.Parse(name); err != nil {
				return nil, err
			}
			if n.ref.Digest != "" && n.ref.Digest != d.Digest {
				return nil, fmt.Errorf("%w: the archive calls %s %s", ErrInvalid, d.Digest, name)
			}
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the archive holds no image", ErrInvalid)
	}
	return out, nil
}

// complete checks that an image is whole. Of an index one platform suffices.
func (im *importer) complete(sum digest.Digest, depth int) error {
	manifest, err := im.s.readManifest(sum)
	if err != nil {
		return err
	}
	if manifest.index == nil {
		for _, c := range manifest.children() {
			size, here := im.s.hasBlob(c.Digest)
			if !here || size != c.Size {
				return fmt.Errorf("%w: the archive lacks %s of image %s", ErrInvalid, c.Digest, sum)
			}
		}
		raw, err := im.s.readBlob(manifest.image.Config.Digest)
		if err != nil {
			return err
		}
		_, err = parseConfig(raw, len(manifest.image.Layers))
		return err
	}
	if depth > 2 {
		return fmt.Errorf("%w: indexes within indexes", ErrInvalid)
	}
	var firstErr error
	for _, c := range manifest.index.Manifests {
		if _, here := im.s.hasBlob(c.Digest); !here {
			continue
		}
		if err := im.complete(c.Digest, depth+1); err == nil {
			return nil
		} else if firstErr == nil {
			firstErr = err
		}
	}
	if firstErr == nil {
		firstErr = fmt.Errorf("%w: the archive lacks every platform of image %s", ErrInvalid, sum)
	}
	return firstErr
}

// docker reads the form of `docker save`: configs and plain layers by path.
func (im *importer) docker(raw []byte) ([]named, error) {
	var list []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("%w: manifest.json: %w", ErrInvalid, err)
	}
	var out []named
	for _, e := range list {
		conf, err := im.file(e.Config)
		if err != nil {
			return nil, err
		}
		rawConf, err := im.s.readBlob(conf)
		if err != nil {
			return nil, err
		}
		if _, err := parseConfig(rawConf, len(e.Layers)); err != nil {
			return nil, err
		}
		m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
			Config: ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: conf, Size: int64(len(rawConf))},
			Layers: []ocispec.Descriptor{}}
		for _, l := range e.Layers {
			d, err := im.file(l)
			if err != nil {
				return nil, err
			}
			size, _ := im.s.hasBlob(d)
			m.Layers = append(m.Layers, ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayer, Digest: d, Size: size})
		}
		b := mustJSON(m)
		if _, err := parseManifest(b); err != nil {
			return nil, err
		}
		d, err := im.s.putBlob(b, "")
		if err != nil {
			return nil, err
		}
		im.pins = append(im.pins, im.s.pin(d))
		if len(e.RepoTags) == 0 {
			out = append(out, named{d: d})
		}
		for _, tag := range e.RepoTags {
			ref, err := imageref.Parse(tag)
			if err != nil {
				return nil, err
			}
			out = append(out, named{ref, d})
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the archive holds no image", ErrInvalid)
	}
	return out, nil
}
