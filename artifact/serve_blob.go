package artifact

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

func (h *Handler) getBlob(w http.ResponseWriter, r *http.Request, repo imageref.Ref, id string) error {
	sum, err := imageref.ParseDigest(id)
	if err != nil {
		return failf(http.StatusBadRequest, "DIGEST_INVALID", "%v", err)
	}
	defer h.Store.pin(sum)()
	desc, linked := h.link(repo, sum)
	sources := h.sources(repo)
	if linked && h.Store.depot.own(repo) {
		if err := h.Store.depot.prove(repo, desc); err != nil {
			return err
		}
		// Of what a ledger names, another process may have the blob. Whoever asks whether to push it is to push it: here it is not.
		if _, linked = stored(h.Store, sum); linked || h.Store.depot.ledger != nil && r.Method != http.MethodHead {
			linked = true // and not by its digest alone
			sources = behind(h.Store, repo, sources)
		} else if err := h.Store.depot.away(repo); err != nil {
			return err
		}
	}
	here := h.Store.proofs.serve(r.Context(), repo, sum, sources)
	if n, _ := h.Store.hasBlob(sum); here && linked && n != desc.Size { // one that was cut short
		if _, err := intact(r.Context(), h.Store, sum); errors.Is(err, ErrDamaged) {
			here = false
		}
	}
	if !linked || !here && (desc.Size == 0 || len(sources) == 0 || elsewhere(desc)) {
		if len(sources) == 0 {
			return failf(http.StatusNotFound, "BLOB_UNKNOWN", "%s has no blob %s", repo.Name(), sum)
		}
		size, err := askAny(r.Context(), repo, "blobs/"+sum.String(), sources)
		if err != nil {
			return unknown(err, "BLOB_UNKNOWN")
		}
		desc = ocispec.Descriptor{Digest: sum, Size: size}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Docker-Content-Digest", sum.String())
	w.Header().Set("Etag", `"`+sum.String()+`"`)
	if r.Method == http.MethodHead && (here || h.Store.depot.own(repo)) {
		h.Store.mu.Lock()
		h.Store.asked[sum] = h.Store.o.Now()
		h.Store.mu.Unlock()
	}
	if here {
		return h.serveFile(w, r, sum)
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Length", strconv.FormatInt(desc.Size, 10))
		w.Header().Set("Accept-Ranges", "bytes")
		return nil
	}
	err = h.fetchAndServe(w, r, repo, desc, sources)
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrFull) {
		return err
	}
	if lacking := h.Store.depot.lacking(repo, sum, true); lacking != nil {
		return lacking
	}
	return unknown(err, "BLOB_UNKNOWN")
}

func (h *Handler) fetchAndServe(w http.ResponseWriter, r *http.Request, repo imageref.Ref, desc ocispec.Descriptor,
	sources []*Source) error {
	f, err := h.Store.join(repo, desc, sources)
	if errors.Is(err, errBusy) {
		return passOn(w, r, repo, desc, sources)
	}
	if err != nil {
		return err
	}
	if f == nil { // arrived meanwhile
		return h.serveFile(w, r, desc.Digest)
	}
	defer h.Store.leave(f)
	return serveFlight(w, r, f)
}

func (h *Handler) serveFile(w http.ResponseWriter, r *http.Request, d digest.Digest) error {
	f, err := os.Open(h.Store.blobPath(d))
	if err != nil {
		return err
	}
	defer f.Close()
	// whoever asks for a part has the rest from elsewhere, and looks at the whole
	if r.Method != http.MethodGet || r.Header.Get("Range") != "" {
		http.ServeContent(w, r, "", time.Time{}, f)
		return nil
	}
	return h.serveWhole(w, f, d)
}

// serveWhole withholds the end of a blob until the rest is what the digest says. One that the medium has changed is
// removed instead: the asker, who misses the end, comes again, and gets it from the registry behind this one.
func (h *Handler) serveWhole(w http.ResponseWriter, file *os.File, d digest.Digest) error {
	st, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.FormatInt(st.Size(), 10))
	sum := d.Algorithm().Digester()
	buf := make([]byte, copyChunk)
	for left := st.Size(); ; {
		n, err := io.ReadFull(file, buf[:min(left, copyChunk)])
		sum.Hash().Write(buf[:n])
		left -= int64(n)
		if err != nil || left == 0 && sum.Digest() != d {
			_ = drop(h.Store, file, d)
			panic(http.ErrAbortHandler) // as in serveFlight
		}
		if _, err := w.Write(buf[:n]); err != nil || left == 0 {
			return nil // the asker has gone, or has all
		}
	}
}

// serveFlight passes a blob on while it comes. It answers only once the first byte is there, so that an upstream error
// is told as such; a later one breaks the connection, and the asker resumes.
func serveFlight(w http.ResponseWriter, r *http.Request, f *flight) error {
	start, err := startOf(w, r, f.desc.Size)
	if err != nil {
		return err
	}
	body := f.reader(r.Context(), start)
	buf := make([]byte, copyChunk)
	n, err := body.Read(buf)
	if err != nil && err != io.EOF {
		return err
	}
	beginBlob(w, start, f.desc.Size)
	for {
		if _, err := w.Write(buf[:n]); err != nil {
			return nil // the asker has gone
		}
		if n, err = body.Read(buf); err == io.EOF {
			return nil
		} else if err != nil {
			panic(http.ErrAbortHandler) // the one way to tell the asker that the rest is missing
		}
	}
}

// startOf gives the offset from which a blob is asked for.
func startOf(w http.ResponseWriter, r *http.Request, size int64) (start int64, err error) {
	rg := r.Header.Get("Range")
	if rg == "" {
		return 0, nil
	}
	from, ok := strings.CutPrefix(rg, "bytes=")
	from, last, _ := strings.Cut(from, "-")
	n, err := strconv.ParseInt(from, 10, 64)
	// To the end, as those ask who resume; others get the whole, as a server may do.
	if end, lerr := strconv.ParseInt(last, 10, 64); ok && err == nil && (last == "" || lerr == nil && end >= size-1) {
		if n < 0 || n >= size {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes */%d", size))
			return 0, failf(http.StatusRequestedRangeNotSatisfiable, "SIZE_INVALID", "it has %d bytes", size)
		}
		return n, nil
	}
	return 0, nil
}

// beginBlob begins the answer with a blob from an offset on.
func beginBlob(w http.ResponseWriter, start, size int64) {
	status := http.StatusOK
	if start > 0 {
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", start, size-1, size))
	}
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.FormatInt(size-start, 10))
	w.WriteHeader(status)
}

// passOn passes a blob on that the cache has no room for. The asker verifies it, and resumes when it breaks off.
func passOn(w http.ResponseWriter, r *http.Request, repo imageref.Ref, desc ocispec.Descriptor, sources []*Source) error {
	start, err := startOf(w, r, desc.Size)
	if err != nil {
		return err
	}
	var failures []error
	begun, gone := false, false
	for _, src := range sources {
		err := src.copyBlob(r.Context(), repo, desc, start, func(b []byte) error {
			if !begun {
				beginBlob(w, start, desc.Size)
				begun = true
			}
			_, err := w.Write(b)
			gone = err != nil
			return err
		})
		switch {
		case err == nil || gone:
			return nil
		case begun:
			panic(http.ErrAbortHandler) // as in serveFlight
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}
