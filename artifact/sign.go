package artifact

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// UnsignedError says why an image does not count as signed.
type UnsignedError struct {
	Ref string // pinned
	Why string
}

func (e *UnsignedError) Error() string {
	return fmt.Sprintf("image %s is not signed: %s", e.Ref, e.Why)
}

// SignatureTag is the tag under which the signatures of an image are, in its repository.
func SignatureTag(d digest.Digest) string { return tagOf(d) + ".sig" }

// tagOf begins the tags that are about an image. A tag has at most 128 characters, so that a long digest is cut, as the protocol says of
// referrers.
func tagOf(d digest.Digest) string {
	return d.Algorithm().String() + "-" + d.Encoded()[:min(64, len(d.Encoded()))]
}

// signaturesOf names the image with the signatures of another.
func signaturesOf(r imageref.Ref) imageref.Ref {
	return imageref.Ref{Registry: r.Registry, Repository: r.Repository, Tag: SignatureTag(r.Digest)}
}

// Sign signs what an image's name means at a registry, and stores the signature there beside those that others made. It
// gives the image, pinned. What the key has signed already stays as it is.
func Sign(ctx context.Context, store *Store, ref string, key *ecdsa.PrivateKey, at *Source) (imageref.Ref, error) {
	r, subject, old, err := signaturesAt(ctx, ref, at)
	if err != nil {
		return imageref.Ref{}, err
	}
	name := signaturesOf(r)
	var layers []ocispec.Descriptor
	if old != nil {
		switch err := signed(ctx, store, r, []*ecdsa.PublicKey{&key.PublicKey}, old, []*Source{at}); {
		case err == nil:
			return r, nil
		case !isUnsigned(err):
			return imageref.Ref{}, err
		case old.image == nil || len(old.image.Layers) >= maxSignatures:
			return imageref.Ref{}, fmt.Errorf("%w: the tag %s of %s has no room for another signature; remove it", ErrInvalid, name.Tag, r.Name())
		}
		layers = old.image.Layers
	}
	defer store.pin(digestsOf(layers)...)()
	for _, l := range layers {
		if l.Size > maxPayload {
			return imageref.Ref{}, fmt.Errorf("%w: a signature of %s has %d bytes", ErrTooLarge, r.Familiar(), l.Size)
		}
		if err := store.fetchBlob(ctx, name, l, []*Source{at}, nil); err != nil {
			return imageref.Ref{}, fmt.Errorf("signatures of %s: %w", r.Familiar(), err)
		}
	}
	document := newPayload(r.Name(), r.Digest)
	signature, err := sign(key, document)
	if err != nil {
		return imageref.Ref{}, err
	}
	layers = append(slices.Clone(layers), ocispec.Descriptor{MediaType: mediaTypePayload, Digest: digest.FromBytes(document),
		Size: int64(len(document)), Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signature)}})
	return r, pushSignatures(ctx, store, name, subject, document, layers, at)
}

// Verify returns what an image's name means at a registry, pinned, where one of the keys has signed that by what the registry has now.
// It is an *UnsignedError where there is no such signature.
func Verify(ctx context.Context, s *Store, ref string, keys []*ecdsa.PublicKey, at *Source) (imageref.Ref, error) {
	r, _, m, err := signaturesAt(ctx, ref, at)
	if err == nil {
		err = signed(ctx, s, r, keys, m, []*Source{at})
	}
	return r, err
}

// signaturesAt gives what an image's name means at a registry, and its signatures there; nil are none.
func signaturesAt(ctx context.Context, ref string, at *Source) (r imageref.Ref, image ocispec.Descriptor, signatures *manifest, err error) {
	if r, err = imageref.Parse(ref); err != nil {
		return r, image, nil, err
	}
	m, err := at.manifest(ctx, r, r.Identifier())
	if err != nil {
		return r, image, nil, fmt.Errorf("image %s: %w", r.Familiar(), err)
	}
	r = r.Pinned(m.desc.Digest)
	signatures, err = at.manifest(ctx, signaturesOf(r), SignatureTag(r.Digest))
	if errors.Is(err, ErrNotFound) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("signatures of %s: %w", r.Familiar(), err)
	}
	return r, m.desc, signatures, err
}

// Signed returns nil where one of the keys has signed an image, which is named by its digest. The sources are asked for
// its signatures where those that the store knows do not do, so that a site goes on without its registry. It is an
// *UnsignedError where there is no such signature.
func Signed(ctx context.Context, s *Store, r imageref.Ref, keys []*ecdsa.PublicKey, sources ...*Source) error {
	at := signaturesOf(r)
	if m, err := s.manifest(ctx, at, at.Tag, nil); err == nil && signed(ctx, s, r, keys, m, nil) == nil {
		return nil
	}
	m, err := s.manifest(ctx, at, at.Tag, sources)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("signatures of %s: %w", r.Familiar(), err)
	}
	if err := signed(ctx, s, r, keys, m, sources); err != nil {
		return err
	}
	return s.putName(at, name{Digest: m.desc.Digest, Cached: m.fetched})
}

// signed looks for a signature that counts among those of an image; nil are none.
func signed(ctx context.Context, store *Store, ref imageref.Ref, keys []*ecdsa.PublicKey, m *manifest, sources []*Source) error {
	no := func(format string, args ...any) error {
		return &UnsignedError{Ref: ref.Familiar(), Why: fmt.Sprintf(format, args...)}
	}
	name := signaturesOf(ref)
	switch {
	case m == nil:
		return no("%s has no tag %s", ref.Name(), name.Tag)
	case m.image == nil:
		return no("the tag %s is an index", name.Tag)
	case len(m.image.Layers) > maxSignatures:
		return no("it has %d signatures, and at most %d are read", len(m.image.Layers), maxSignatures)
	}
	defer store.pin(append(digestsOf(m.image.Layers), m.desc.Digest)...)()
	why := no("none of the %d signatures is by a key that counts", len(m.image.Layers))
	for _, l := range m.image.Layers {
		signature, err := base64.StdEncoding.DecodeString(l.Annotations[signatureAnnotation])
		if l.MediaType != mediaTypePayload || l.Size > maxPayload || err != nil || len(signature) > maxSignature {
			continue
		}
		if err := store.fetchBlob(ctx, name, l, sources, nil); err != nil {
			return fmt.Errorf("signatures of %s: %w", ref.Familiar(), err)
		}
		document, err := store.readBlob(l.Digest)
		if err != nil {
			return fmt.Errorf("signatures of %s: %w", ref.Familiar(), err)
		}
		if !signedBy(keys, document, signature) {
			continue
		}
		about, err := payloadDigest(document)
		if err == nil && about == ref.Digest {
			return nil
		}
		why = no("a key that counts signed another image or document there (%s)", cmp.Or(string(about), "none"))
	}
	return why
}

func isUnsigned(err error) bool {
	_, ok := errors.AsType[*UnsignedError](err)
	return ok
}

func digestsOf(list []ocispec.Descriptor) (out []digest.Digest) {
	for _, d := range list {
		out = append(out, d.Digest)
	}
	return out
}

// pushSignatures makes an image of signatures and puts it under its tag. It names the image that it is about as its
// subject, too, so that a registry lists it among the referrers of that.
func pushSignatures(ctx context.Context, store *Store, name imageref.Ref, subject ocispec.Descriptor, document []byte,
	layers []ocispec.Descriptor, to *Source) error {
	config := mustJSON(ocispec.Image{RootFS: ocispec.RootFS{Type: "layers", DiffIDs: digestsOf(layers)}})
	raw := mustJSON(ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: artifactTypeOfSig, Layers: layers,
		Config:  ocispec.Descriptor{MediaType: ocispec.MediaTypeImageConfig, Digest: digest.FromBytes(config), Size: int64(len(config))},
		Subject: &ocispec.Descriptor{MediaType: subject.MediaType, Digest: subject.Digest, Size: subject.Size}})
	m, err := parseManifest(raw)
	if err != nil {
		return err
	}
	defer store.pin(m.desc.Digest, m.image.Config.Digest, digest.FromBytes(document))()
	for _, b := range [][]byte{document, config, raw} {
		if _, err := store.putBlob(b, ""); err != nil {
			return err
		}
	}
	p := &pusher{s: store, to: to, r: name}
	for _, c := range unique(m.children()) {
		if err := p.blob(ctx, c); err != nil {
			return fmt.Errorf("push signatures to %s: %w", name.Familiar(), err)
		}
	}
	if err := p.manifest(ctx, m, name.Tag); err != nil {
		return fmt.Errorf("push signatures to %s: %w", name.Familiar(), err)
	}
	return store.setName(name, m.desc.Digest)
}
