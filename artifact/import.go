package artifact

import (
	"archive/tar"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// Import reads a tar with an OCI layout, or one of `docker save`, and gives the names it set. Nothing is named unless
// all that it holds is whole, and nothing of it stays otherwise. A layout without names needs fallback, which must be
// empty or name the only image.
func (s *Store) Import(ctx context.Context, in io.Reader, fallback string) ([]string, error) {
	return take(ctx, s, fallback, func(im *importer) error {
		t, done, err := openTar(ctx, in)
		if err != nil {
			return err
		}
		defer done()
		return im.read(t)
	})
}

// ImportLayout is Store.Import of an OCI layout that is a directory. No link in it is followed.
func ImportLayout(ctx context.Context, store *Store, dir, fallback string) ([]string, error) {
	return take(ctx, store, fallback, func(im *importer) error { return im.walk(ctx, dir) })
}

// take has an importer filled, and names what it then holds.
func take(ctx context.Context, store *Store, fallback string, fill func(*importer) error) (names []string, err error) {
	im := &importer{s: store, ctx: ctx, files: map[string]digest.Digest{}, links: map[string]string{}, small: map[string][]byte{},
		layers: map[[2]digest.Digest]bool{}, looked: map[digest.Digest]error{}}
	defer func() { im.release(err != nil && len(names) == 0) }()
	if err := fill(im); err != nil {
		return nil, fmt.Errorf("import: %w", diskError(err))
	}
	images, err := im.resolve()
	if err != nil {
		return nil, fmt.Errorf("import: %w", diskError(err))
	}
	if len(images) > maxArchiveTags {
		return nil, fmt.Errorf("import: archive: %w: %d names of images, %d at most", ErrTooLarge, len(images), maxArchiveTags)
	}
	if fallback != "" {
		ref, err := imageref.Parse(fallback)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(images, func(n named) bool { return n.d != images[0].d }) {
			images = images[:1] // the same image under several names
		}
		if len(images) != 1 {
			return nil, fmt.Errorf("import: %w: there are %d images, and one name was given; import it without", ErrInvalid, len(images))
		}
		images[0].ref = ref
	}
	for _, n := range images {
		if n.ref == (imageref.Ref{}) {
			return nil, fmt.Errorf("import: %w: image %s has no name; give one", ErrInvalid, n.d)
		}
		if n.ref.Digest != "" && n.ref.Digest != n.d { // such a name would be believed without a look at the content
			return nil, fmt.Errorf("import: %w: image %s cannot be called %s", ErrInvalid, n.d, n.ref)
		}
	}
	for _, n := range images {
		for _, d := range im.files {
			if err := store.proofs.note(n.ref, d); err != nil {
				return names, fmt.Errorf("import: %w", err)
			}
		}
		if err := store.setName(n.ref, n.d); err != nil {
			return names, fmt.Errorf("import: %w", err)
		}
		names = append(names, n.ref.String())
	}
	return names, nil
}

type named struct {
	ref imageref.Ref
	d   digest.Digest
}

// importer keeps every file of the archive as a blob, pinned, until it is known what it is for.
type importer struct {
	s     *Store
	ctx   context.Context
	files map[string]digest.Digest // by path in the archive
	links map[string]string
	small map[string][]byte // index.json and manifest.json
	pins  []func()
	fresh []digest.Digest // blobs that were not here before
	total int64

	layers map[[2]digest.Digest]bool // blobs that were found to hold the layer of a diff ID
	looked map[digest.Digest]error   // what complete found: three small indexes can name one image a thousand million times
}

// What an archive may hold.
const (
	maxArchiveFiles = 100_000
	maxArchiveBytes = 1 << 40
	maxArchiveName  = 1024 // bytes of a path, which is kept in memory; in a tar it may have a million
	maxArchiveTags  = 1000 // names of its images, each of which is noted for each blob
)

// release lets go of the blobs; those of an archive that was refused are removed, for nobody would miss them.
func (im *importer) release(refused bool) {
	for _, p := range im.pins {
		p()
	}
	if !refused {
		return
	}
	im.s.mu.Lock()
	defer im.s.mu.Unlock()
	live, _, _ := im.s.liveLocked(context.Background(), nil)
	for _, d := range im.fresh {
		if !live[d] {
			_ = im.s.proofs.removeBlob(d) // Prune does it later
		}
	}
}

// room counts a file of the archive.
func (im *importer) room(n int, size int64) error {
	if im.total += size; n >= maxArchiveFiles || size < 0 || size > im.s.o.MaxLayer || im.total > maxArchiveBytes {
		return fmt.Errorf("archive: %w", ErrTooLarge)
	}
	return nil
}

func (im *importer) read(t *tar.Reader) error {
	for n := 0; ; n++ {
		header, err := t.Next()
		if err == io.EOF {
			if n == 0 {
				return fmt.Errorf("%w: the archive is empty", ErrInvalid)
			}
			return nil
		}
		if err != nil {
			return tarError(err)
		}
		if err := im.room(n, header.Size); err != nil {
			return err
		}
		if len(header.Name) > maxArchiveName || len(header.Linkname) > maxArchiveName {
			return fmt.Errorf("archive: %w: a name of %d bytes", ErrTooLarge, max(len(header.Name), len(header.Linkname)))
		}
		if sparse(header) { // a few bytes of it stand for as many as it likes
			return fmt.Errorf("%w: %.200q is a sparse file, which no image has", ErrInvalid, header.Name)
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

// walk reads a layout from a directory. Everything is opened below it, so that neither a link nor a directory that is
// exchanged meanwhile leads out of it.
func (im *importer) walk(ctx context.Context, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	count := 0
	one := func(name string) error {
		st, err := root.Lstat(name)
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() { // opening a pipe would wait for its other end
			return fmt.Errorf("%w: %.200q is no file", ErrInvalid, name)
		}
		if err := im.room(count, st.Size()); err != nil {
			return err
		}
		count++
		f, err := root.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		if name != ocispec.ImageIndexFile {
			return im.blob(name, io.LimitReader(&ctxReader{ctx, f}, im.s.o.MaxLayer))
		}
		if im.small[name], err = io.ReadAll(io.LimitReader(f, maxManifest+1)); err == nil && len(im.small[name]) > maxManifest {
			return fmt.Errorf("%s: %w", name, ErrTooLarge)
		}
		return err
	}
	if err := one(ocispec.ImageIndexFile); err != nil {
		return err
	}
	return fs.WalkDir(root.FS(), ocispec.ImageBlobsDir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return one(name)
	})
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
	if im.files[name], err = im.keep(w, want); err != nil {
		return err
	}
	return nil
}

// keep makes a blob durable, and notes whether it is new.
func (im *importer) keep(w *blobWriter, want digest.Digest) (digest.Digest, error) {
	im.pins = append(im.pins, im.s.pin(cmp.Or(want, w.h.Digest())))
	_, here := im.s.hasBlob(cmp.Or(want, w.h.Digest()))
	d, err := w.commit(want)
	if err == nil && !here {
		im.fresh = append(im.fresh, d)
	}
	return d, err
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
	return nil, fmt.Errorf("%w: the archive has neither index.json nor manifest.json; "+
		"`docker save` and `skerry image export` write one of them", ErrInvalid)
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
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the archive holds no image", ErrInvalid)
	}
	return out, nil
}

// complete checks that an image is whole. Of an index one platform suffices. It looks at each once; an index that lay too
// deep then stays refused where it lies higher, too.
func (im *importer) complete(sum digest.Digest, depth int) error {
	err, known := im.looked[sum]
	if !known {
		err = im.look(sum, depth)
		im.looked[sum] = err
	}
	return err
}

func (im *importer) look(sum digest.Digest, depth int) error {
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
		config, err := parseConfig(raw, len(manifest.image.Layers))
		if err != nil {
			return err
		}
		return im.holds(manifest.image.Layers, config.RootFS.DiffIDs)
	}
	if depth > 2 {
		return fmt.Errorf("%w: indexes within indexes", ErrInvalid)
	}
	var firstErr error
	for _, c := range manifest.index.Manifests {
		if _, here := im.s.hasBlob(c.Digest); !here {
			continue
		}
		err := im.complete(c.Digest, depth+1)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrDigest), errors.Is(err, ErrTooLarge), im.ctx.Err() != nil: // it is all here, and wrong
			return err
		case firstErr == nil:
			firstErr = err
		}
	}
	if firstErr == nil {
		firstErr = fmt.Errorf("%w: the archive lacks every platform of image %s", ErrInvalid, sum)
	}
	return firstErr
}

// holds checks that blobs are the layers that the config names. A worker would refuse them, but only once it starts the
// image.
func (im *importer) holds(blobs []ocispec.Descriptor, diffIDs []digest.Digest) error {
	for i, l := range blobs {
		key := [2]digest.Digest{l.Digest, diffIDs[i]}
		if im.layers[key] {
			continue
		}
		err := readArchive(im.ctx, im.s, l.Digest, diffIDs[i], func(r io.Reader) error {
			_, err := io.Copy(io.Discard, r)
			return err
		})
		if err != nil {
			return err
		}
		im.layers[key] = true
	}
	return nil
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
		config, err := parseConfig(rawConf, len(e.Layers))
		if err != nil {
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
		if err := im.holds(m.Layers, config.RootFS.DiffIDs); err != nil {
			return nil, err
		}
		d, err := im.manifest(m)
		if err != nil {
			return nil, err
		}
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

// manifest keeps a manifest of our own.
func (im *importer) manifest(m ocispec.Manifest) (digest.Digest, error) {
	raw := mustJSON(m)
	if _, err := parseManifest(raw); err != nil {
		return "", err
	}
	w, err := im.s.newBlob()
	if err != nil {
		return "", err
	}
	defer w.discard()
	if _, err := w.Write(raw); err != nil {
		return "", err
	}
	return im.keep(w, "")
}
