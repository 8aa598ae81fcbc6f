package artifact

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry/artifact/imageref"
)

// uploadIdle is how long an upload may rest before its room is given to another.
const uploadIdle = time.Hour

// upload is a blob that a client sends, in one piece or several.
type upload struct {
	repo, owner string
	share       Share
	mu          sync.Mutex // held while a piece comes: one at a time
	w           *blobWriter
	last        time.Time // guarded by Handler.mu
	charged     int64     // to the owner's account; guarded by Handler.mu
}

func (h *Handler) maxBlob() int64 {
	if h.MaxBlob > 0 {
		return h.MaxBlob
	}
	return 10 << 30
}

func (h *Handler) upload(w http.ResponseWriter, r *http.Request, repo imageref.Ref, id string) error {
	if id == "" {
		if r.Method != http.MethodPost {
			return notAllowed(w, r, "POST")
		}
		return h.beginUpload(w, r, repo)
	}
	h.mu.Lock()
	up := h.uploads[id]
	if up != nil {
		up.last = time.Now()
	}
	h.mu.Unlock()
	if up == nil || up.repo != repo.Name() {
		return failf(http.StatusNotFound, "BLOB_UPLOAD_UNKNOWN", "there is no such upload; begin again")
	}
	if !up.mu.TryLock() {
		return failf(http.StatusConflict, "BLOB_UPLOAD_INVALID", "another piece of this upload is coming in")
	}
	defer up.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
		progressHeaders(w, repo, id, up.w.n)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodDelete:
		h.endUpload(id, false)
		w.WriteHeader(http.StatusNoContent)
		return nil
	case http.MethodPatch:
		if err := h.receive(r, up); err != nil {
			return err
		}
		progressHeaders(w, repo, id, up.w.n)
		w.WriteHeader(http.StatusAccepted)
		return nil
	case http.MethodPut:
		return h.finishUpload(w, r, repo, id, up)
	}
	return notAllowed(w, r, "GET, PATCH, PUT, DELETE")
}

func progressHeaders(w http.ResponseWriter, repo imageref.Ref, id string, n int64) {
	w.Header().Set("Location", "/v2/"+repo.Repository+"/blobs/uploads/"+id)
	w.Header().Set("Docker-Upload-Uuid", id)
	w.Header().Set("Range", fmt.Sprintf("0-%d", max(n-1, 0)))
}

func (h *Handler) beginUpload(w http.ResponseWriter, r *http.Request, repo imageref.Ref) error {
	query := r.URL.Query()
	if mount := query.Get("mount"); mount != "" {
		if ok, err := h.mount(w, r, repo, mount, query.Get("from")); ok || err != nil {
			return err
		}
	}
	share, err := h.shareOf(r.Context(), repo)
	if err != nil {
		return err
	}
	h.tidy()
	up, id, err := h.newUpload(repo, share)
	if err != nil {
		return err
	}
	if query.Get("digest") != "" {
		up.mu.Lock()
		defer up.mu.Unlock()
		defer h.endUpload(id, false) // the client was not told of it, and cannot come back
		return h.finishUpload(w, r, repo, id, up)
	}
	progressHeaders(w, repo, id, 0)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// mount takes a blob over from another repository that the client may read: from the one that it names, or else from any. Without success
// an upload begins, as the protocol says.
func (h *Handler) mount(w http.ResponseWriter, r *http.Request, repo imageref.Ref, id, from string) (bool, error) {
	sum, err := imageref.ParseDigest(id)
	if err != nil {
		return false, failf(http.StatusBadRequest, "DIGEST_INVALID", "%v", err)
	}
	defer h.Store.pin(sum)()
	size, here := stored(h.Store, sum)
	has := func(repository string) bool {
		other := imageref.Ref{Registry: repo.Registry, Repository: repository}
		return h.authorize(r, other.Name(), ActionPull) == nil && h.linked(other, sum)
	}
	switch {
	case !here:
		return false, nil
	case from == "":
		proven := func(repository string) bool {
			return h.Store.proofs.has(imageref.Ref{Registry: repo.Registry, Repository: repository}, sum)
		}
		if !slices.ContainsFunc(h.repositories(repo.Registry, true), func(name string) bool { return proven(name) && has(name) }) {
			return false, nil
		}
	case !imageref.ValidRepository(from) || !has(from):
		return false, nil
	}
	share, err := h.shareOf(r.Context(), repo)
	if err != nil {
		return false, err
	}
	if err := h.Store.depot.keep(r.Context(), repo, sum); err != nil {
		return false, err
	}
	if err := h.grant(repo, share, sum, size); err != nil {
		return false, err
	}
	created(w, "/v2/"+repo.Repository+"/blobs/"+sum.String(), sum)
	return true, nil
}

func created(w http.ResponseWriter, location string, d digest.Digest) {
	w.Header().Set("Location", location)
	w.Header().Set("Docker-Content-Digest", d.String())
	w.WriteHeader(http.StatusCreated)
}

// maxTags is how many tags a manifest may be pushed with at a time.
const maxTags = 32

// minUploads is how many uploads an owner may have while there are any left.
const minUploads = 4

// owner is who a repository belongs to: somebody with a share, or else its namespace.
func owner(repo imageref.Ref, share Share) string {
	if share.Owner != "" {
		return share.Owner
	}
	namespace, _, _ := strings.Cut(repo.Repository, "/")
	return "/" + namespace
}

func (h *Handler) newUpload(repo imageref.Ref, share Share) (*upload, string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	limit := h.MaxUploads
	if limit == 0 {
		limit = 64
	}
	own := 0 // of whoever owns the repository
	for id, up := range h.uploads {
		if time.Since(up.last) > uploadIdle && up.mu.TryLock() {
			up.w.discard()
			h.dischargeLocked(up, false)
			up.mu.Unlock()
			delete(h.uploads, id)
		} else if up.owner == owner(repo, share) {
			own++
		}
	}
	// One owner has at most as many as are still free, so that there always are some for others.
	if free := limit - len(h.uploads); free <= 0 || own >= max(free, minUploads) {
		return nil, "", failf(http.StatusTooManyRequests, "TOOMANYREQUESTS", "%d uploads are running, which is the limit; try again later", limit)
	}
	w, err := h.Store.newBlob()
	if err != nil {
		return nil, "", err
	}
	up, id := &upload{repo: repo.Name(), owner: owner(repo, share), share: share, w: w, last: time.Now()}, strings.ToLower(rand.Text())
	if h.uploads == nil {
		h.uploads = map[string]*upload{}
	}
	h.uploads[id] = up
	return up, id, nil
}

// endUpload forgets an upload and what was not committed. The caller holds its lock.
func (h *Handler) endUpload(id string, committed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if up := h.uploads[id]; up != nil {
		up.w.discard()
		h.dischargeLocked(up, committed)
		delete(h.uploads, id)
	}
}

// receive appends the request's body.
func (h *Handler) receive(r *http.Request, up *upload) error {
	if cr := r.Header.Get("Content-Range"); cr != "" {
		from, _, _ := strings.Cut(strings.TrimPrefix(cr, "bytes "), "-")
		if n, err := strconv.ParseInt(strings.TrimSpace(from), 10, 64); err != nil || n != up.w.n {
			return failf(http.StatusRequestedRangeNotSatisfiable, "BLOB_UPLOAD_INVALID", "the next piece begins at %d, not at %q", up.w.n, cr)
		}
	}
	room := h.maxBlob() - up.w.n
	tooLarge := func() error {
		return failf(http.StatusRequestEntityTooLarge, "SIZE_INVALID", "a blob may have %d bytes", h.maxBlob())
	}
	if r.ContentLength > room {
		return tooLarge()
	}
	w := h.shareWriter(up)
	if s, ok := w.(*shareWriter); ok {
		// Before anything is sent: clients that are still sending may miss the answer.
		if err := s.fits(max(r.ContentLength, 0), false); err != nil {
			return err
		}
	}
	n, err := io.Copy(w, io.LimitReader(r.Body, room+1))
	if err != nil {
		return err
	}
	if n > room {
		return tooLarge()
	}
	return nil
}

func (h *Handler) finishUpload(w http.ResponseWriter, r *http.Request, repo imageref.Ref, id string, up *upload) error {
	want, err := imageref.ParseDigest(r.URL.Query().Get("digest"))
	if err != nil {
		return failf(http.StatusBadRequest, "DIGEST_INVALID", "%v", err)
	}
	if err := h.receive(r, up); err != nil {
		var refused *apiError
		if !errors.As(err, &refused) || refused.status != http.StatusRequestedRangeNotSatisfiable { // then the right piece may still come
			h.endUpload(id, false)
		}
		return err
	}
	err = h.keep(r.Context(), repo, id, up, want)
	if err != nil {
		return err
	}
	created(w, "/v2/"+repo.Repository+"/blobs/"+want.String(), want)
	return nil
}

// keep stores what an upload received.
func (h *Handler) keep(ctx context.Context, repo imageref.Ref, id string, up *upload, want digest.Digest) error {
	unpin := h.Store.pin(want)
	_, err := up.w.commit(want)
	if err == nil {
		err = h.Store.depot.keep(ctx, repo, want)
	}
	if err == nil {
		err = h.grant(repo, up.share, want, up.w.n)
	}
	h.endUpload(id, err == nil)
	unpin()
	if err != nil {
		return errors.Join(err, h.Store.release([]digest.Digest{want}))
	}
	return nil
}

// grant lets a repository use a blob before a manifest names it.
func (h *Handler) grant(repo imageref.Ref, share Share, sum digest.Digest, size int64) error {
	if err := h.Store.proofs.note(repo, sum); err != nil {
		return err
	}
	return h.settle(share, size, func() (func(), error) {
		s := h.Store
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.grants[repo.Name()] == nil {
			s.grants[repo.Name()] = map[digest.Digest]time.Time{}
		}
		old, had := s.grants[repo.Name()][sum]
		s.grants[repo.Name()][sum] = s.o.Now()
		s.changes++
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if delete(s.grants[repo.Name()], sum); had {
				s.grants[repo.Name()][sum] = old
			}
			s.changes++
		}, nil
	})
}

func (h *Handler) putManifest(w http.ResponseWriter, r *http.Request, repo imageref.Ref, identifier string) error {
	share, err := h.shareOf(r.Context(), repo)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, maxManifest+1))
	if err != nil {
		return err
	}
	if len(raw) > maxManifest {
		return failf(http.StatusRequestEntityTooLarge, "SIZE_INVALID", "a manifest may have %d bytes", maxManifest)
	}
	manifest, err := parseManifest(raw)
	if err != nil {
		return failf(http.StatusBadRequest, "MANIFEST_INVALID", "%v", err)
	}
	tags := r.URL.Query()["tag"]
	if d, err := imageref.ParseDigest(identifier); err != nil {
		tags = []string{identifier}
	} else if manifest.desc.Digest = d.Algorithm().FromBytes(raw); manifest.desc.Digest != d {
		return failf(http.StatusBadRequest, "DIGEST_INVALID", "the manifest is %s, not %s", manifest.desc.Digest, d)
	}
	for _, tag := range tags {
		if !imageref.ValidTag(tag) {
			return failf(http.StatusBadRequest, "MANIFEST_INVALID", "%.200q is not a tag", tag)
		}
	}
	if len(tags) > maxTags {
		return failf(http.StatusRequestURITooLong, "UNSUPPORTED", "a manifest may be pushed with %d tags at a time", maxTags)
	}
	var pins []digest.Digest
	for _, c := range manifest.children() {
		pins = append(pins, c.Digest)
	}
	unpin := h.Store.pin(append(pins, manifest.desc.Digest)...)
	defer unpin()
	for i, c := range manifest.children() {
		size, here := stored(h.Store, c.Digest)
		here = here && h.linked(repo, c.Digest)
		if isLayer := manifest.index == nil && i > 0; !here && isLayer && elsewhere(c) {
			continue
		}
		if !here {
			return failf(http.StatusBadRequest, "MANIFEST_BLOB_UNKNOWN", "it refers to %s, which was not pushed to %s", c.Digest, repo.Name())
		}
		if size != c.Size {
			return failf(http.StatusBadRequest, "SIZE_INVALID", "it says that %s has %d bytes, and it has %d", c.Digest, c.Size, size)
		}
		if err := h.Store.depot.keep(r.Context(), repo, c.Digest); err != nil {
			return err
		}
	}
	if err := h.name(r.Context(), repo, tags, share, raw, manifest.desc.Digest); err != nil {
		unpin()
		return errors.Join(err, h.Store.release([]digest.Digest{manifest.desc.Digest}))
	}
	h.Store.mu.Lock()
	for _, d := range pins {
		delete(h.Store.grants[repo.Name()], d)
	}
	h.Store.changes++
	h.Store.mu.Unlock()
	if h.Store.depot != nil {
		_ = h.Store.Cache.makeRoom(0) // the depot has what goes
	}
	if h.Copied != nil {
		if text := h.Copied(r.Context(), manifest.desc.Digest); text != "" {
			w.Header().Set(CopiesHeader, text)
		}
	}
	if subject := referrerOf(manifest).subject; subject != "" {
		w.Header().Set("OCI-Subject", subject.String())
	}
	if r.URL.Query().Has("tag") && identifier == manifest.desc.Digest.String() {
		w.Header()["Oci-Tag"] = tags
	}
	created(w, "/v2/"+repo.Repository+"/manifests/"+url.PathEscape(manifest.desc.Digest.String()), manifest.desc.Digest)
	return nil
}

// name stores a manifest under tags, and by digest as well: it stays when a tag moves on, as clients that pin expect.
func (h *Handler) name(ctx context.Context, repo imageref.Ref, tags []string, share Share, raw []byte, sum digest.Digest) error {
	names := []imageref.Ref{repo.Pinned(sum)}
	for _, tag := range tags {
		names = append(names, imageref.Ref{Registry: repo.Registry, Repository: repo.Repository, Tag: tag})
	}
	if len(tags) > 0 { // again: whoever deletes the image meanwhile may not have seen the tags
		names = append(names, repo.Pinned(sum))
	}
	return h.settle(share, int64(len(raw)), func() (func(), error) {
		if _, err := h.Store.putBlob(raw, sum); err != nil {
			return nil, err
		}
		if err := h.Store.depot.keep(ctx, repo, sum); err != nil {
			return nil, err
		}
		again := context.WithoutCancel(ctx)
		var undo []func()
		undoAll := func() {
			for _, f := range slices.Backward(undo) {
				f()
			}
		}
		for _, n := range names {
			h.Store.mu.Lock()
			old, had := h.Store.names[key(n)]
			h.Store.mu.Unlock()
			if !had {
				if err := h.roomForName(repo, share); err != nil {
					undoAll()
					return nil, err
				}
			}
			if err := publish(ctx, h.Store, n, name{Digest: sum, Pushed: true}); err != nil {
				undoAll()
				return nil, err
			}
			undo = append(undo, func() {
				if had {
					_ = publish(again, h.Store, n, old)
				} else {
					_ = unpublish(again, h.Store, n, func() bool { return true })
				}
			})
		}
		return undoAll, nil
	})
}

// deleteBlob removes a blob that was pushed to a repository. One that an image there needs stays until the image is deleted.
func (h *Handler) deleteBlob(w http.ResponseWriter, repo imageref.Ref, id string) error {
	sum, err := imageref.ParseDigest(id)
	if err != nil {
		return failf(http.StatusBadRequest, "DIGEST_INVALID", "%v", err)
	}
	s := h.Store
	for desc := range s.content(repo) {
		if _, here := stored(s, sum); here && desc.Digest == sum {
			return failf(http.StatusMethodNotAllowed, "UNSUPPORTED", "an image of %s needs %s; delete the image", repo.Name(), sum)
		}
	}
	s.mu.Lock()
	_, granted := s.grants[repo.Name()][sum]
	delete(s.grants[repo.Name()], sum)
	s.mu.Unlock()
	if !granted {
		return failf(http.StatusNotFound, "BLOB_UNKNOWN", "%s has no blob %s", repo.Name(), sum)
	}
	if err := s.release([]digest.Digest{sum}); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
