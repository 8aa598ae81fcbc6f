package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// A blob that is here serves a repository only once the repository was found to have it: else somebody who has heard of the digest of
// another's layer would get it by a manifest of his own, at a registry of his own. The proof is a file proven/HEX/REGISTRY-REPOSITORY. A
// repository proves a blob by sending it; where another repository of the same registry did, by the registry's word.

func shortID(s string) string {
	sum := sha256.Sum256([]byte(s))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:15]))
}

func proofName(r imageref.Ref) string { return shortID(r.Registry) + "-" + shortID(r.Repository) }

// proofs are those of a store.
type proofs struct{ s *Store }

func (p proofs) of(d digest.Digest) string { return filepath.Join(p.s.dir, "proven", d.Encoded()) }

// has reports whether a repository was found to have a blob.
func (p proofs) has(r imageref.Ref, d digest.Digest) bool {
	_, err := os.Lstat(filepath.Join(p.of(d), proofName(r)))
	return err == nil
}

// note notes that a repository has a blob.
func (p proofs) note(r imageref.Ref, d digest.Digest) error {
	if err := os.MkdirAll(p.of(d), 0o700); err != nil {
		return diskError(err)
	}
	return diskError(os.WriteFile(filepath.Join(p.of(d), proofName(r)), nil, 0o600))
}

// removeBlob removes a blob with its proofs, the proofs first.
func (p proofs) removeBlob(d digest.Digest) error {
	if err := os.RemoveAll(p.of(d)); err != nil {
		return err
	}
	return os.Remove(p.s.blobPath(d))
}

// serve reports whether a blob that is here may be given to a repository. Without sources it may: nobody else knows more.
func (p proofs) serve(ctx context.Context, r imageref.Ref, d digest.Digest, sources []*Source) bool {
	size, here := p.s.hasBlob(d)
	if !here || len(sources) == 0 || p.has(r, d) {
		return here
	}
	list, err := os.ReadDir(p.of(d))
	if err != nil || !slices.ContainsFunc(list, func(e fs.DirEntry) bool { return strings.HasPrefix(e.Name(), shortID(r.Registry)+"-") }) {
		return false
	}
	for _, src := range sources {
		if n, err := src.blobSize(ctx, r, d); err == nil {
			return n == size && p.note(r, d) == nil
		}
	}
	return false
}

// fetched reports whether a blob need not be fetched, as far as nobody is asked.
func (p proofs) fetched(r imageref.Ref, d digest.Digest, sources []*Source) (int64, bool) {
	n, here := p.s.hasBlob(d)
	return n, here && (len(sources) == 0 || p.has(r, d))
}

// Proven gives an image, by its digest, that the repository of a reference was found to have, whole, for a platform, and else ErrNotFound.
// That an index of the repository names it proves nothing: it may be somebody else's.
func Proven(s *Store, r imageref.Ref, p Platform) (Image, error) {
	img, err := s.Image(r.Digest, p)
	if err != nil {
		return Image{}, err
	}
	proven := s.Has(r, r.Digest) && s.proofs.has(r, img.config)
	for _, layer := range img.layers {
		proven = proven && s.proofs.has(r, layer)
	}
	if !proven {
		return Image{}, fmt.Errorf("%s: %w: it is not known that %s has all of it", r.Digest, ErrNotFound, r.Name())
	}
	return img, nil
}

// adopt takes the names of a store of an earlier version, which noted no proofs, at their word.
func (p proofs) adopt() error {
	dir := filepath.Join(p.s.dir, "proven")
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, k := range slices.Sorted(maps.Keys(p.s.names)) {
		r, err := imageref.Parse(k)
		if err != nil {
			continue
		}
		for desc := range p.s.under(r, slices.Values([]digest.Digest{p.s.names[k].Digest})) {
			if _, here := p.s.hasBlob(desc.Digest); here {
				if err := p.note(r, desc.Digest); err != nil {
					return err
				}
			}
		}
	}
	return os.MkdirAll(dir, 0o700)
}
