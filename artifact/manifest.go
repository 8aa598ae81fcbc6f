package artifact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// Media types besides those of OCI.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	acceptManifest = ocispec.MediaTypeImageManifest + ", " + ocispec.MediaTypeImageIndex + ", " + dockerManifest + ", " + dockerList
)

// Limits of what is parsed.
const (
	maxManifest = 4 << 20 // bytes of a manifest, an index or a config
	maxLayers   = 500
	maxIndex    = 1000 // manifests of an index
)

// manifest is a parsed manifest or index; exactly one of image and index is set.
type manifest struct {
	desc  ocispec.Descriptor // digest, size, media type of raw
	raw   []byte
	image *ocispec.Manifest
	index *ocispec.Index

	fetched bool // just now, from another registry
}

// parseManifestAs is parseManifest for one that is known by a digest, which the caller has verified.
func parseManifestAs(raw []byte, d digest.Digest) (*manifest, error) {
	m, err := parseManifest(raw)
	if err == nil {
		m.desc.Digest = d
	}
	return m, err
}

// parseManifest reads OCI and Docker v2 schema 2 manifests and indexes.
func parseManifest(raw []byte) (*manifest, error) {
	bad := func(format string, args ...any) (*manifest, error) {
		return nil, fmt.Errorf("%w: manifest: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	if len(raw) > maxManifest {
		return bad("it has %d bytes, at most %d are taken", len(raw), maxManifest)
	}
	var head struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     string          `json:"mediaType"`
		Manifests     json.RawMessage `json:"manifests"`
		Layers        json.RawMessage `json:"layers"`
		FSLayers      json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return bad("%v", err)
	}
	if head.SchemaVersion != 2 || head.FSLayers != nil {
		return bad("schema version %d is not supported, only 2; build the image with a newer tool", head.SchemaVersion)
	}
	m := &manifest{raw: raw, desc: ocispec.Descriptor{MediaType: head.MediaType, Digest: digest.FromBytes(raw), Size: int64(len(raw))}}
	// A document that is both could be read as one thing here and as another elsewhere.
	if head.Manifests != nil && head.Layers != nil {
		return bad("it is a manifest and an index at once")
	}
	switch head.MediaType {
	case "":
		m.desc.MediaType = ocispec.MediaTypeImageManifest
		if head.Manifests != nil {
			m.desc.MediaType = ocispec.MediaTypeImageIndex
		}
	case ocispec.MediaTypeImageManifest, dockerManifest, ocispec.MediaTypeImageIndex, dockerList:
	default:
		return bad("media type %.100q is not one of an image", head.MediaType)
	}
	switch m.desc.MediaType {
	case ocispec.MediaTypeImageIndex, dockerList:
		if head.Layers != nil {
			return bad("an index with layers")
		}
		m.index = &ocispec.Index{}
		if err := json.Unmarshal(raw, m.index); err != nil {
			return bad("%v", err)
		}
		if len(m.index.Manifests) > maxIndex {
			return bad("it lists %d manifests, at most %d are taken", len(m.index.Manifests), maxIndex)
		}
		for _, d := range m.index.Manifests {
			if err := checkDescriptor(d, maxManifest); err != nil {
				return bad("%v", err)
			}
		}
	default:
		if head.Manifests != nil {
			return bad("an image manifest that lists manifests")
		}
		m.image = &ocispec.Manifest{}
		if err := json.Unmarshal(raw, m.image); err != nil {
			return bad("%v", err)
		}
		if len(m.image.Layers) > maxLayers {
			return bad("it has %d layers, at most %d are taken", len(m.image.Layers), maxLayers)
		}
		if err := checkDescriptor(m.image.Config, maxManifest); err != nil {
			return bad("config: %v", err)
		}
		for i, d := range m.image.Layers {
			if err := checkDescriptor(d, 1<<40); err != nil {
				return bad("layer %d: %v", i, err)
			}
		}
	}
	return m, nil
}

// elsewhere reports whether a layer need not be in a registry, because it lies on a server that its descriptor names. Such a layer
// belongs to an image only where the image's repository is proven to have it: else its digest would be enough to get a blob of somebody
// else's.
func elsewhere(d ocispec.Descriptor) bool {
	return len(d.URLs) > 0 && (strings.Contains(d.MediaType, "nondistributable") || strings.Contains(d.MediaType, "foreign"))
}

func checkDescriptor(d ocispec.Descriptor, limit int64) error {
	if _, err := imageref.ParseDigest(d.Digest.String()); err != nil {
		return err
	}
	if d.Size < 0 || d.Size > limit {
		return fmt.Errorf("%s has a size of %d bytes, at most %d are taken", d.Digest, d.Size, limit)
	}
	return nil
}

// children are the blobs and manifests that m refers to.
func (m *manifest) children() []ocispec.Descriptor {
	if m.index != nil {
		return m.index.Manifests
	}
	return append([]ocispec.Descriptor{m.image.Config}, m.image.Layers...)
}

// choose gives the manifest of an index that suits p best.
func (m *manifest) choose(platform Platform) (ocispec.Descriptor, []Platform, bool) {
	best, score := ocispec.Descriptor{}, 0
	var offers []Platform
	for _, d := range m.index.Manifests {
		have := fromSpec(d.Platform)
		if have.OS == "unknown" || have == (Platform{}) && len(m.index.Manifests) > 1 {
			continue // attestations and the like
		}
		if d.MediaType == ocispec.MediaTypeImageIndex || d.MediaType == dockerList {
			continue
		}
		offers = append(offers, have)
		s := platform.runs(have)
		if have == (Platform{}) {
			s = 1 // a lone manifest whose config will tell
		}
		if s > score {
			best, score = d, s
		}
	}
	return best, offers, score > 0
}

// parseConfig reads an image's config and checks it against the manifest.
func parseConfig(raw []byte, layers int) (*ocispec.Image, error) {
	var c ocispec.Image
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("%w: config: %v", ErrInvalid, err)
	}
	if len(c.RootFS.DiffIDs) != layers {
		return nil, fmt.Errorf("%w: config names %d layers and the manifest %d", ErrInvalid, len(c.RootFS.DiffIDs), layers)
	}
	for _, d := range c.RootFS.DiffIDs {
		if _, err := imageref.ParseDigest(d.String()); err != nil {
			return nil, fmt.Errorf("%w: config: %v", ErrInvalid, err)
		}
	}
	return &c, nil
}

func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // our own types marshal
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
