package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/time/rate"

	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/internal/panics"
)

const (
	fetchTries   = 5                // in a row without a new byte, per source
	fetchBackoff = time.Second / 10 // doubled from try to try
	stallTimeout = time.Minute      // without a byte, a connection is given up
	copyChunk    = 32 << 10
)

// flight is one blob on its way to a repository, whoever waits for it. It writes into partial/NAME; readers may follow in the file. The
// last byte is withheld until the digest is right, so that no reader takes a wrong blob for a whole one.
type flight struct {
	desc   ocispec.Descriptor
	name   string // of its file: the digest and the repository
	file   *os.File
	cancel context.CancelFunc

	mu      sync.Mutex // after Store.mu
	have    int64
	done    bool
	err     error
	wake    chan struct{} // closed and replaced on every change
	waiters int           // guarded by Store.mu; the last one to leave stops the transfer
}

func (f *flight) state() (have int64, done bool, wake <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.have, f.done, f.wake, f.err
}

func (f *flight) update(have int64, done bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.have, f.done, f.err = have, done, err
	close(f.wake)
	f.wake = make(chan struct{})
}

// join gives the flight of a blob, begun now or before, or nil when the blob is here.
func (s *Store) join(ref imageref.Ref, desc ocispec.Descriptor, sources []*Source) (*flight, error) {
	if err := checkDescriptor(desc, 1<<40); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	name := desc.Digest.Encoded() + "-" + proofName(ref)
	s.mu.Lock()
	joined, done, err := underWay(s, ref, name, desc, sources)
	s.mu.Unlock()
	if done || err != nil {
		return joined, err
	}
	joined, err = begin(s, ref, name, desc, sources, s.Cache.usedNow(desc.Size))
	if errors.Is(err, errNotAsked) {
		joined, err = begin(s, ref, name, desc, sources, s.Cache.askUsed())
	}
	return joined, err
}

// begin joins a flight, or begins one; used is as makeRoomLocked takes it.
func begin(store *Store, ref imageref.Ref, name string, desc ocispec.Descriptor, sources []*Source,
	used map[digest.Digest]bool) (*flight, error) {
	store.mu.Lock()
	defer store.mu.Unlock()
	if joined, done, err := underWay(store, ref, name, desc, sources); done || err != nil {
		return joined, err
	}
	// What standbys alone have is the store's own, and no part of the cache.
	if d := store.depot; d == nil || d.ledger == nil || len(sources) != 1 || sources[0] != d.source {
		if err := store.Cache.makeRoomLocked(desc.Size, used); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(filepath.Join(store.dir, "partial", name), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, diskError(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{desc: desc, name: name, file: file, cancel: cancel, wake: make(chan struct{}), waiters: 1}
	store.flights[name] = f
	store.running.Go(func() {
		err := store.fly(ctx, f, ref, sources)
		cancel()
		store.mu.Lock()
		delete(store.flights, name)
		store.mu.Unlock()
		f.update(f.have, true, diskError(err))
	})
	return f, nil
}

// underWay joins a flight that is under way; done without one means that the blob is here. The store is locked; where the blob may be
// damaged it is not for a while.
func underWay(store *Store, ref imageref.Ref, name string, desc ocispec.Descriptor, sources []*Source) (joined *flight,
	done bool, err error) {
	if store.closed {
		return nil, false, errors.New("the image store is closed")
	}
	if n, ok := store.proofs.fetched(ref, desc.Digest, sources); ok {
		if n == desc.Size {
			return nil, true, nil
		}
		store.mu.Unlock()
		_, err := intact(context.Background(), store, desc.Digest)
		store.mu.Lock()
		if !errors.Is(err, ErrDamaged) {
			return nil, false, fmt.Errorf("%s: %w: it has %d bytes and its manifest says %d", desc.Digest, ErrInvalid, n, desc.Size)
		}
	}
	if joined = store.flights[name]; joined == nil {
		return nil, false, nil
	}
	if joined.desc.Size != desc.Size {
		return nil, false, fmt.Errorf("%s: %w: two manifests say that it has %d and %d bytes", desc.Digest, ErrInvalid, joined.desc.Size,
			desc.Size)
	}
	joined.waiters++
	return joined, true, nil
}

// leave is the counterpart of join.
func (s *Store) leave(f *flight) {
	s.mu.Lock()
	f.waiters--
	last := f.waiters == 0
	if last && s.flights[f.name] == f {
		// Nobody joins one that is about to stop; the next gets its own, after this one has let go of the file.
		f.cancel()
	}
	s.mu.Unlock()
	if last {
		for {
			_, done, wake, _ := f.state()
			if done {
				break
			}
			<-wake
		}
		f.file.Close()
	}
}

// fetchBlob makes sure that a blob is here, and is one of the repository's. progress, if not nil, gets the bytes that are.
func (s *Store) fetchBlob(ctx context.Context, r imageref.Ref, desc ocispec.Descriptor, sources []*Source, progress func(int64)) error {
	if s.depot.own(r) && s.Has(r, desc.Digest) {
		sources = behind(s, r, sources)
	}
	return fetchFrom(ctx, s, r, desc, sources, progress)
}

// fetchFrom is fetchBlob with all sources that there are.
func fetchFrom(ctx context.Context, store *Store, repo imageref.Ref, desc ocispec.Descriptor, sources []*Source,
	progress func(int64)) error {
	store.proofs.serve(ctx, repo, desc.Digest, sources) // a registry's word may save the transfer
	for {
		f, err := store.join(repo, desc, sources)
		if err != nil {
			return err
		}
		if f == nil {
			if progress != nil {
				progress(desc.Size)
			}
			return nil
		}
		err = f.wait(ctx, progress)
		store.leave(f)
		if errors.Is(err, context.Canceled) && ctx.Err() == nil && !store.isClosed() {
			continue // joined one that its last waiter was just leaving
		}
		return err
	}
}

func (s *Store) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (f *flight) wait(ctx context.Context, progress func(int64)) error {
	for {
		have, done, wake, err := f.state()
		if progress != nil {
			progress(have)
		}
		if done {
			return err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reader follows a flight from an offset.
func (f *flight) reader(ctx context.Context, offset int64) io.Reader {
	return readerFunc(func(data []byte) (int, error) {
		for {
			have, done, wake, err := f.state()
			if done && err != nil {
				return 0, err
			}
			limit := min(have, f.desc.Size-1)
			if done {
				limit = f.desc.Size
			}
			if offset < limit {
				n, err := f.file.ReadAt(data[:min(int64(len(data)), limit-offset)], offset)
				offset += int64(n)
				if n > 0 {
					return n, nil
				}
				return 0, err
			}
			if done {
				return 0, io.EOF
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// fly brings a blob: it continues what an earlier attempt left, survives broken connections, and goes from source to
// source. What is there when it fails stays for the next attempt, unless it is wrong or the disk is full.
func (s *Store) fly(ctx context.Context, f *flight, ref imageref.Ref, sources []*Source) (err error) {
	defer panics.Error(&err)
	h := f.desc.Digest.Algorithm().Digester()
	have, err := io.Copy(h.Hash(), f.file)
	if err != nil {
		return err
	}
	restart := func() error {
		h, have = f.desc.Digest.Algorithm().Digester(), 0
		if err := f.file.Truncate(0); err != nil {
			return err
		}
		_, err := f.file.Seek(0, io.SeekStart)
		f.update(0, false, nil)
		return err
	}
	if have > f.desc.Size {
		if err := restart(); err != nil {
			return err
		}
	}
	f.update(have, false, nil)
	resumed := have > 0
	var failures []error
	for i := 0; i < len(sources); i++ {
		broken, err := s.flyFrom(ctx, f, ref, sources[i], h, &have)
		resumed = resumed || broken
		if err == nil && h.Digest() != f.desc.Digest {
			err = fmt.Errorf("%s from %s: %w", f.desc.Digest, sources[i].where(ref), ErrDigest)
			if rerr := restart(); rerr != nil {
				return rerr
			}
			if s.depot != nil && sources[i] == s.depot.source && !resumed {
				s.depot.forget(f.desc.Digest)
			}
			if resumed { // perhaps the earlier part was wrong: once more from the beginning
				resumed = false
				i--
				continue
			}
		}
		if err == nil {
			if err := s.adopt(f.file, f.desc.Digest); err != nil {
				return err
			}
			return s.proofs.note(ref, f.desc.Digest)
		}
		if errors.Is(diskError(err), ErrFull) {
			// Room matters more now than a head start later.
			_ = os.Remove(f.file.Name())
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failures = append(failures, err)
	}
	if have == 0 {
		_ = os.Remove(f.file.Name())
	}
	if len(failures) == 0 {
		return fmt.Errorf("layer or config %s is not in this store: %w", f.desc.Digest, ErrNotFound)
	}
	return errors.Join(failures...)
}

// flyFrom asks one source until the blob is whole or it is no use. broken says that the parts are of several answers.
func (s *Store) flyFrom(ctx context.Context, f *flight, ref imageref.Ref, src *Source, h digest.Digester, have *int64) (broken bool,
	err error) {
	for tries := 0; ; {
		if *have == f.desc.Size {
			return broken, nil
		}
		before := *have
		err := src.copyBlob(ctx, ref, f.desc, *have, func(b []byte) error {
			n, err := f.file.Write(b)
			h.Hash().Write(b[:n])
			*have += int64(n)
			f.update(*have, false, nil)
			return err
		})
		switch {
		case err == nil && *have == f.desc.Size:
			return broken, nil
		case ctx.Err() != nil:
			return broken, ctx.Err()
		case err == nil:
			err = io.ErrUnexpectedEOF
		}
		if !src.retry(diskError(err)) {
			return broken, err
		}
		broken = broken || *have > 0
		if *have > before {
			tries = 0
		}
		if tries++; tries >= fetchTries {
			return broken, fmt.Errorf("%s from %s, at byte %d of %d: %w", f.desc.Digest, src.where(ref), *have, f.desc.Size, err)
		}
		wait := fetchBackoff << (tries - 1)
		var st *statusError
		if errors.As(err, &st) {
			wait = max(wait, st.after)
		}
		if err := sleep(ctx, wait); err != nil {
			return broken, err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyBlob hands the bytes from offset on to write. It never hands out more than the descriptor allows.
func (s *Source) copyBlob(ctx context.Context, ref imageref.Ref, desc ocispec.Descriptor, offset int64, write func([]byte) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallTimeout, func() {
		cancel(fmt.Errorf("%s sent nothing for %v", s.where(ref), stallTimeout))
	})
	defer stalled.Stop()
	q := httpRequest{method: http.MethodGet, url: s.url(ref, "blobs/"+desc.Digest.String(), nil),
		header: http.Header{"Accept-Encoding": {"identity"}}}
	if offset > 0 {
		// With its end, for some registries refuse an open one.
		q.header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, desc.Size-1))
	}
	res, err := s.do(ctx, ref, q)
	if err != nil {
		var st *statusError
		if errors.As(err, &st) && st.status == http.StatusRequestedRangeNotSatisfiable && offset > 0 {
			q.header.Del("Range")
			res, err = s.do(ctx, ref, q)
		}
		if err != nil {
			return err
		}
	}
	defer res.Body.Close()
	skip := offset
	if res.StatusCode == http.StatusPartialContent { // else it knows no ranges: the part that is here is read over
		start, _, _ := strings.Cut(strings.TrimPrefix(res.Header.Get("Content-Range"), "bytes "), "-")
		if start != strconv.FormatInt(offset, 10) {
			return fmt.Errorf("%w: asked for bytes from %d, got %q", ErrInvalid, offset, res.Header.Get("Content-Range"))
		}
		skip = 0
	}
	body := io.LimitReader(res.Body, skip+desc.Size-offset+1)
	buf := make([]byte, copyChunk)
	left := desc.Size - offset
	for {
		n, rerr := body.Read(buf)
		stalled.Reset(stallTimeout)
		data := buf[:n]
		if s.Limit != nil && n > 0 {
			if err := waitN(ctx, s.Limit, n); err != nil {
				return err
			}
			stalled.Reset(stallTimeout)
		}
		if d := min(skip, int64(len(data))); d > 0 {
			skip -= d
			data = data[d:]
		}
		if int64(len(data)) > left {
			return fmt.Errorf("%w: %s sends more than the %d bytes of %s", ErrInvalid, s.where(ref), desc.Size, desc.Digest)
		}
		if len(data) > 0 {
			left -= int64(len(data))
			if err := write(data); err != nil {
				return err
			}
		}
		if rerr == io.EOF {
			return nil
		}
		if rerr != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return rerr
		}
	}
}

func waitN(ctx context.Context, l *rate.Limiter, n int) error {
	for n > 0 {
		part := min(n, max(l.Burst(), 1))
		if err := l.WaitN(ctx, part); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// manifest gets one by tag or digest. Its digest is verified when it was asked for by digest.
func (s *Source) manifest(ctx context.Context, r imageref.Ref, identifier string) (*manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	q := httpRequest{method: http.MethodGet, url: s.url(r, "manifests/"+url.PathEscape(identifier), nil),
		header: http.Header{"Accept": {acceptManifest}}}
	var lastErr error
	for try := range fetchTries {
		if try > 0 {
			if err := sleep(ctx, fetchBackoff<<(try-1)); err != nil {
				return nil, errors.Join(lastErr, err)
			}
		}
		m, err := s.manifestOnce(ctx, r, q, identifier)
		if err == nil || ctx.Err() != nil || !s.retry(err) {
			return m, err
		}
		lastErr = err
	}
	return nil, lastErr
}

// retry tells whether another try in a moment may help. Where nobody listens it will not: the next source is better. And
// a mirror that cannot reach what is above it has tried often enough itself; tries would multiply from tier to tier.
func (s *Source) retry(err error) bool {
	var st *statusError
	if s.BaseURL != "" && errors.As(err, &st) && (st.status == http.StatusBadGateway || st.status == http.StatusGatewayTimeout) {
		return false
	}
	var dns *net.DNSError
	return temporary(err) && !errors.As(err, new(*DepotError)) && !errors.Is(err, syscall.ECONNREFUSED) &&
		!(errors.As(err, &dns) && dns.IsNotFound)
}

func (s *Source) manifestOnce(ctx context.Context, r imageref.Ref, q httpRequest, identifier string) (*manifest, error) {
	res, err := s.do(ctx, r, q)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxManifest+1))
	if err != nil {
		return nil, err
	}
	d, err := imageref.ParseDigest(identifier)
	if err != nil {
		// Of a tag, the registry says by which algorithm it knows the image.
		if d, err = imageref.ParseDigest(res.Header.Get("Docker-Content-Digest")); err == nil && d.Algorithm().FromBytes(raw) == d {
			return parseManifestAs(raw, d)
		}
		return parseManifest(raw)
	}
	if d.Algorithm().FromBytes(raw) != d {
		return nil, fmt.Errorf("manifest %s from %s: %w", d, s.where(r), ErrDigest)
	}
	return parseManifestAs(raw, d)
}

// blobSize asks whether a source has a blob, and how large it is.
func (s *Source) blobSize(ctx context.Context, r imageref.Ref, d digest.Digest) (int64, error) {
	return s.size(ctx, r, http.MethodHead, "blobs/"+d.String())
}

// known asks whether a source has a manifest or blob, and how large it is. A tier above that cannot reach what it has a name for answers
// HEAD with 404, so that whoever asks whether to push it does. It says to GET alone whether nobody knows it.
func (s *Source) known(ctx context.Context, r imageref.Ref, path string) (int64, error) {
	n, err := s.size(ctx, r, http.MethodHead, path)
	if s.BaseURL != "" && errors.Is(err, ErrNotFound) {
		n, err = s.size(ctx, r, http.MethodGet, path)
	}
	return n, err
}

func (s *Source) size(ctx context.Context, r imageref.Ref, method, path string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	res, err := s.do(ctx, r, httpRequest{method: method, url: s.url(r, path, nil), header: http.Header{"Accept": {acceptManifest}}})
	if err != nil {
		return 0, err
	}
	res.Body.Close()
	if res.ContentLength < 0 {
		return 0, fmt.Errorf("%s does not tell the size of %s", s.where(r), path)
	}
	return res.ContentLength, nil
}
