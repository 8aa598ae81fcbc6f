package artifact

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// Image is what a runtime needs to know of an image for one platform.
type Image struct {
	Ref      imageref.Ref  // the name it was pulled by; zero from Image
	Digest   digest.Digest // as asked for: index or manifest
	Manifest digest.Digest
	Platform Platform
	Size     int64 // bytes of config and layers as transferred

	Entrypoint   []string
	Cmd          []string
	Env          []string
	User         string
	WorkingDir   string
	StopSignal   string
	ExposedPorts []string // "8080/tcp", sorted
	Volumes      []string // sorted
	Labels       map[string]string

	config  digest.Digest
	layers  []digest.Digest // compressed blobs, lowest first
	diffIDs []digest.Digest
}

// Args is the command line that the image starts, unless overridden.
func (i Image) Args() []string { return slices.Concat(i.Entrypoint, i.Cmd) }

// Image reads an image that is in the store, by the digest of its index or manifest. It does not look whether its
// layers are here.
func (s *Store) Image(d digest.Digest, p Platform) (Image, error) {
	found, err := s.readManifest(d)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", d, err)
	}
	which := d
	if found.index != nil {
		desc, offers, ok := found.choose(p)
		if !ok {
			return Image{}, &PlatformError{Ref: d.String(), Want: p, Offers: offers}
		}
		which = desc.Digest
		if found, err = s.readManifest(which); err != nil {
			return Image{}, fmt.Errorf("image %s: %w", which, err)
		}
	}
	img, err := imageOf(s, which, found)
	if err == nil && p.runs(img.Platform) == 0 {
		return Image{}, &PlatformError{Ref: d.String(), Want: p, Offers: []Platform{img.Platform}}
	}
	img.Digest = d
	return img, err
}

func (s *Store) image(sum digest.Digest) (Image, error) {
	manifest, err := s.readManifest(sum)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", sum, err)
	}
	return imageOf(s, sum, manifest)
}

// imageOf reads an image whose manifest, sum, was read.
func imageOf(store *Store, sum digest.Digest, manifest *manifest) (Image, error) {
	if manifest.image == nil {
		return Image{}, fmt.Errorf("image %s: %w: an index where a manifest was expected", sum, ErrInvalid)
	}
	raw, err := store.readBlob(manifest.image.Config.Digest)
	if err != nil {
		return Image{}, fmt.Errorf("image %s: config: %w", sum, err)
	}
	c, err := parseConfig(raw, len(manifest.image.Layers))
	if err != nil {
		return Image{}, fmt.Errorf("image %s: %w", sum, err)
	}
	img := Image{Digest: sum, Manifest: sum, Platform: fromSpec(&c.Platform),
		Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd, Env: c.Config.Env, User: c.Config.User,
		WorkingDir: c.Config.WorkingDir, StopSignal: c.Config.StopSignal, Labels: c.Config.Labels,
		ExposedPorts: slices.Sorted(maps.Keys(c.Config.ExposedPorts)), Volumes: slices.Sorted(maps.Keys(c.Config.Volumes)),
		diffIDs: c.RootFS.DiffIDs, config: manifest.image.Config.Digest}
	for _, l := range manifest.image.Layers {
		img.layers = append(img.layers, l.Digest)
	}
	for _, c := range manifest.children() {
		img.Size += c.Size
	}
	return img, nil
}

// RootFS unpacks the layers of an image, as far as they are not, and gives their folders, topmost first, as overlayfs
// takes them. The folders must only be read. They stay as long as the image has a name or is given to Prune.
func (s *Store) RootFS(ctx context.Context, d digest.Digest, p Platform) ([]string, error) {
	img, err := s.Image(d, p)
	if err != nil {
		return nil, err
	}
	return Unpack(ctx, s, img)
}

// Unpack is Store.RootFS of an image that was read already.
func Unpack(ctx context.Context, store *Store, img Image) ([]string, error) {
	var dirs []string
	for i := range img.layers {
		dir, err := store.unpackLayer(ctx, img.layers[i], img.diffIDs[i])
		if err != nil {
			return nil, fmt.Errorf("unpack layer %d of %s: %w", i, img.Digest, err)
		}
		dirs = append(dirs, dir)
	}
	slices.Reverse(dirs)
	if n := store.o.Now(); len(dirs) > 0 {
		store.touch(img.Digest, n)
	}
	return dirs, nil
}

// OverlayOptions gives the data of mount(2) for an overlay of lower, topmost first, with an upper and a work folder on
// one file system; both empty mounts read-only. The kernel takes one page of it: more layers than fit are refused.
func (s *Store) OverlayOptions(lower []string, upper, work string) (string, error) {
	lower = slices.Clone(lower)
	if upper == "" && len(lower) == 1 || len(lower) == 0 {
		lower = append(lower, filepath.Join(s.dir, "empty")) // the kernel wants two without an upper one
	}
	escape := strings.NewReplacer(`\`, `\\`, ":", `\:`, ",", `\,`)
	for i := range lower {
		lower[i] = escape.Replace(lower[i])
	}
	o := "lowerdir=" + strings.Join(lower, ":")
	if upper != "" {
		// Not a list: here a colon is no separator.
		one := strings.NewReplacer(`\`, `\\`, ",", `\,`)
		o += ",upperdir=" + one.Replace(upper) + ",workdir=" + one.Replace(work)
	}
	if len(o) > 4095 {
		return "", fmt.Errorf("%w: its %d layers do not fit into one mount (%d bytes of 4095); build it with fewer layers", ErrTooLarge,
			len(lower), len(o))
	}
	return o, nil
}
