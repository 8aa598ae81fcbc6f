package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// Push copies an image from the store to the registry that dest names, or to the registry behind to.BaseURL. Of an
// index, the platforms whose layers are here are pushed; when some are missing, the index that arrives lists only the
// others. It gives the digest that dest then has.
func (s *Store) Push(ctx context.Context, ref, dest string, to *Source, progress func(Progress)) (digest.Digest, error) {
	from, err := imageref.Parse(ref)
	if err != nil {
		return "", err
	}
	r, err := imageref.Parse(dest)
	if err != nil {
		return "", err
	}
	sum, ok := s.Lookup(from)
	if !ok {
		return "", &NotFoundError{Ref: from.Familiar(), Where: []string{"this store"}}
	}
	manifest, parts, err := s.exportable(sum)
	if err != nil {
		return "", fmt.Errorf("push %s: %w", from.Familiar(), err)
	}
	if r.Digest != "" && r.Digest != manifest.desc.Digest {
		return "", fmt.Errorf("push %s to %s: the image is %s; leave the digest away", from.Familiar(), dest, manifest.desc.Digest)
	}
	p := &pusher{s: s, to: to, r: r, progress: progress}
	var pins []digest.Digest
	for _, part := range parts {
		for _, c := range part.children() {
			pins = append(pins, c.Digest)
			p.total += c.Size
		}
		pins = append(pins, part.desc.Digest)
	}
	defer s.pin(pins...)()
	for _, part := range parts {
		for _, c := range unique(part.children()) {
			if err := p.blob(ctx, c); err != nil {
				return "", fmt.Errorf("push %s to %s: %w", from.Familiar(), r.Familiar(), err)
			}
		}
		if part != manifest {
			if err := p.manifest(ctx, part, part.desc.Digest.String()); err != nil {
				return "", fmt.Errorf("push %s to %s: %w", from.Familiar(), r.Familiar(), err)
			}
		}
	}
	if err := p.manifest(ctx, manifest, r.Identifier()); err != nil {
		return "", fmt.Errorf("push %s to %s: %w", from.Familiar(), r.Familiar(), err)
	}
	return manifest.desc.Digest, nil
}

// whole reports whether all that an image manifest names is here.
func whole(s *Store, m *manifest) bool {
	return !slices.ContainsFunc(m.children(), func(c ocispec.Descriptor) bool {
		_, here := s.hasBlob(c.Digest)
		return !here
	})
}

// wholePart reads an image manifest that an index names, if it is complete here, or gives nil.
func wholePart(s *Store, desc *ocispec.Descriptor) *manifest {
	if part, err := s.readManifest(desc.Digest); err == nil && part.image != nil && whole(s, part) {
		return part
	}
	return nil
}

// Absent lists the platforms of an image that are not complete in this store, which Push and Export leave out.
func Absent(s *Store, ref string) (list []Platform, err error) {
	name, err := imageref.Parse(ref)
	if err != nil {
		return nil, err
	}
	sum, ok := s.Lookup(name)
	if !ok {
		return nil, &NotFoundError{Ref: name.Familiar(), Where: []string{"this store"}}
	}
	top, err := s.readManifest(sum)
	if err != nil || top.index == nil {
		return nil, err
	}
	for _, desc := range top.index.Manifests {
		if desc.Platform != nil && desc.Platform.OS != "unknown" && wholePart(s, &desc) == nil {
			list = append(list, fromSpec(desc.Platform))
		}
	}
	return list, nil
}

// exportable gives the manifest to hand on, and the image manifests in it that are complete here.
func (s *Store) exportable(sum digest.Digest) (*manifest, []*manifest, error) {
	m, err := s.readManifest(sum)
	if err != nil {
		return nil, nil, err
	}
	if m.index == nil {
		if !whole(s, m) {
			return nil, nil, fmt.Errorf("%w: some of its layers are not in this store; pull it first", ErrNotFound)
		}
		return m, []*manifest{m}, nil
	}
	var parts []*manifest
	var kept []ocispec.Descriptor
	for _, desc := range m.index.Manifests {
		if part := wholePart(s, &desc); part != nil {
			parts, kept = append(parts, part), append(kept, desc)
		}
	}
	if len(parts) == 0 {
		return nil, nil, fmt.Errorf("%w: none of its platforms is in this store; pull it first", ErrNotFound)
	}
	if len(kept) < len(m.index.Manifests) {
		idx := *m.index
		idx.Manifests = kept
		if m, err = parseManifest(mustJSON(idx)); err != nil {
			return nil, nil, err
		}
	}
	return m, parts, nil
}

type pusher struct {
	s           *Store
	to          *Source
	r           imageref.Ref
	progress    func(Progress)
	done, total int64
}

func (p *pusher) moved(d digest.Digest, n int64) {
	p.done += n
	if p.progress != nil {
		p.progress(Progress{Blob: d, Done: p.done, Total: p.total})
	}
}

func (p *pusher) blob(ctx context.Context, desc ocispec.Descriptor) error {
	if n, err := p.to.blobSize(ctx, p.r, desc.Digest); err == nil && n == desc.Size {
		p.moved(desc.Digest, desc.Size)
		return nil
	} else if errors.Is(err, ErrDenied) {
		return err
	}
	var err error
	for try := range fetchTries {
		if try > 0 {
			if serr := sleep(ctx, fetchBackoff<<(try-1)); serr != nil {
				return errors.Join(err, serr)
			}
		}
		before := p.done
		if err = p.blobOnce(ctx, desc); err == nil {
			return nil
		}
		p.done = before
		if !p.to.retry(err) || p.to.gaveUp(err) {
			return err
		}
	}
	return err
}

// gaveUp reports whether a registry of ours says that it cannot reach where its images are kept: it has tried several times itself.
func (s *Source) gaveUp(err error) bool {
	st, ok := errors.AsType[*statusError](err)
	return ok && s.BaseURL != "" && st.status == http.StatusServiceUnavailable
}

func (p *pusher) blobOnce(ctx context.Context, desc ocispec.Descriptor) error {
	res, err := p.to.do(ctx, p.r, httpRequest{method: http.MethodPost, url: p.to.url(p.r, "blobs/uploads/", nil), push: true,
		want: http.StatusAccepted})
	if err != nil {
		return err
	}
	res.Body.Close()
	place := res.Header.Get("Location")
	at, err := res.Request.URL.Parse(place)
	if err != nil || place == "" {
		return fmt.Errorf("%s does not begin an upload (location %q)", p.to.where(p.r), place)
	}
	query := at.Query()
	query.Set("digest", desc.Digest.String())
	if p.to.BaseURL != "" {
		query.Set("ns", p.r.Registry)
	}
	at.RawQuery = query.Encode()
	res, err = p.to.do(ctx, p.r, httpRequest{method: http.MethodPut, url: at.String(), push: true, length: desc.Size, want: http.StatusCreated,
		stores: desc.Digest, header: http.Header{"Content-Type": {"application/octet-stream"}},
		body: func() (io.ReadCloser, error) {
			f, err := os.Open(p.s.blobPath(desc.Digest))
			if err != nil {
				return nil, err
			}
			return struct {
				io.Reader
				io.Closer
			}{readerFunc(func(b []byte) (int, error) {
				if p.to.Limit != nil {
					b = b[:min(len(b), copyChunk)]
				}
				n, err := f.Read(b)
				if p.to.Limit != nil && n > 0 {
					if err := waitN(ctx, p.to.Limit, n); err != nil {
						return 0, err
					}
				}
				return n, err
			}), f}, nil
		}})
	if err != nil {
		return err
	}
	res.Body.Close()
	p.moved(desc.Digest, desc.Size)
	return nil
}

func (p *pusher) manifest(ctx context.Context, m *manifest, identifier string) error {
	res, err := p.to.do(ctx, p.r, httpRequest{method: http.MethodPut, url: p.to.url(p.r, "manifests/"+url.PathEscape(identifier), nil),
		push: true, header: http.Header{"Content-Type": {m.desc.MediaType}}, length: m.desc.Size, want: http.StatusCreated,
		stores: m.desc.Digest, body: func() (io.ReadCloser, error) { return io.NopCloser(readerOf(m.raw)), nil }})
	if err != nil {
		return err
	}
	res.Body.Close()
	if text := res.Header.Get(CopiesHeader); text != "" && p.progress != nil {
		p.progress(Progress{Done: p.done, Total: p.total, Copies: text})
	}
	if d := res.Header.Get("Docker-Content-Digest"); d != "" && d != m.desc.Digest.String() {
		return fmt.Errorf("%w: %s took the manifest as %s and not as %s", ErrDigest, p.to.where(p.r), d, m.desc.Digest)
	}
	return nil
}
