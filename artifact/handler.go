package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"skerry.dev/skerry/artifact/imageref"
)

// Actions that Authorize is asked about.
const (
	ActionPull   = "pull"
	ActionPush   = "push"
	ActionDelete = "delete"
)

// ErrLogin is what Authorize gives to ask for credentials; any other error is a refusal.
var ErrLogin = errors.New("log in first")

// Handler serves a store over the OCI distribution protocol, below /v2/. It is a registry of its own under the name
// Registry, and a pull-through cache of others when Upstream is set: a request with the query parameter ns=HOST means
// the registry HOST, as containerd's mirrors have it.
//
// What is not here is fetched from upstream and passed on while it comes, once, however many ask. Tags of other
// registries are asked for anew, and answered from the store when upstream cannot be reached.
type Handler struct {
	Store *Store
	// Registry is the name of the built-in registry, and Aliases are others that mean it too, such as the host names it
	// is reached by. Requests without ns mean it. Empty means the request's Host.
	Registry string
	Aliases  []string
	// Upstream gives the sources of a registry that is not the built-in one, in order. Nil: only what is here is served.
	Upstream func(registry string) []*Source
	// UpstreamLocal gives the sources for the built-in registry's own misses: at a cluster, its root.
	UpstreamLocal []*Source
	// Authorize decides about a repository ("registry/name") and an action; nil allows pull and refuses the rest. For
	// /v2/ itself and the catalog the repository is empty.
	Authorize func(r *http.Request, repository, action string) error
	// MayRead, if set, decides beside Authorize about what is read of a repository: kind is manifests (id is a tag or a
	// digest), blobs, tags or referrers.
	MayRead func(r *http.Request, repo imageref.Ref, kind, id string) error
	// Share, if set, says how much the owner of a namespace, which is the first part of a repository's name, may push.
	Share func(ctx context.Context, namespace string) (Share, error)
	// Delete, if set, decides about each deletion of a tag or an image, and carries it out with remove. A *InUseError refuses it.
	Delete func(r *http.Request, what Deletion, remove func() error) error
	// Copied, if set, waits for copies of an image that was pushed, and says how many there are, for the header CopiesHeader; "": nothing.
	Copied func(ctx context.Context, image digest.Digest) string
	// MaxBlob limits one uploaded blob; 0 means 10 GiB. MaxUploads limits uploads at a time; 0 means 64.
	MaxBlob    int64
	MaxUploads int

	mu        sync.Mutex
	uploads   map[string]*upload
	accounts  map[string]*account // by owner
	tidied    time.Time
	referrers map[digest.Digest]referrer // of manifests that were read

	ahead map[digest.Digest]time.Time // images whose last use lies ahead, since Collect saw that; guarded by Store.mu
}

// CopiesHeader says of a push how many of the processes that stand by have the image: HAVE/OF.
const CopiesHeader = "Skerry-Copies"

// apiError is an answer in the protocol's form.
type apiError struct {
	status  int
	code    string
	message string
}

func (e *apiError) Error() string { return e.message }

func failf(status int, code, format string, args ...any) error {
	return &apiError{status, code, fmt.Sprintf(format, args...)}
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-Api-Version", "registry/2.0")
	if err := h.serve(w, r); err != nil {
		writeError(w, err)
	}
}

func writeError(w http.ResponseWriter, err error) {
	var a *apiError
	if !errors.As(err, &a) {
		a = &apiError{http.StatusInternalServerError, "UNKNOWN", err.Error()}
		var tooLarge *http.MaxBytesError
		var away *DepotError
		switch {
		case errors.Is(err, ErrFull):
			a.status = http.StatusInsufficientStorage
		case errors.Is(err, ErrNotFound):
			a.status, a.code = http.StatusNotFound, "NAME_UNKNOWN"
		case errors.Is(err, ErrTooLarge), errors.As(err, &tooLarge):
			a.status, a.code = http.StatusRequestEntityTooLarge, "SIZE_INVALID"
		case errors.Is(err, ErrDigest):
			a.status, a.code = http.StatusBadRequest, "DIGEST_INVALID"
		case errors.Is(err, ErrInvalid):
			a.status, a.code = http.StatusBadRequest, "MANIFEST_INVALID"
		case errors.As(err, &away):
			a.status, a.code, a.message = http.StatusServiceUnavailable, "UNAVAILABLE", away.Error()
		case errors.As(err, new(*InUseError)):
			a.status, a.code = http.StatusConflict, "DENIED"
		case errors.Is(err, ErrDenied):
			a.status, a.code = http.StatusForbidden, "DENIED"
		case temporary(err):
			a.status = http.StatusBadGateway
		}
	}
	if a.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="skerry"`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = w.Write(mustJSON(map[string]any{"errors": []map[string]string{{"code": a.code, "message": a.message}}}))
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	path, ok := strings.CutPrefix(r.URL.Path, "/v2")
	if !ok {
		return failf(http.StatusNotFound, "NAME_UNKNOWN", "only /v2/ is served here")
	}
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch path {
	case "", "/":
		if !read {
			return notAllowed(w, r, "GET, HEAD")
		}
		if err := h.authorize(r, "", ActionPull); err != nil {
			return err
		}
		return writeJSON(w, r, struct{}{})
	case "/_catalog":
		if !read {
			return notAllowed(w, r, "GET, HEAD")
		}
		if err := h.authorize(r, "", ActionPull); err != nil {
			return err
		}
		return writeJSON(w, r, map[string][]string{"repositories": page(w, r,
			h.catalog(r, func(repo string) bool { return h.authorize(r, repo, ActionPull) == nil }))})
	}
	name, kind, rest := splitPath(path[1:])
	if !imageref.ValidRepository(name) {
		return failf(http.StatusBadRequest, "NAME_INVALID", "%.300q is not a repository name", name)
	}
	repo := imageref.Ref{Registry: h.registry(r), Repository: name}
	if !imageref.ValidHost(repo.Registry) {
		return failf(http.StatusBadRequest, "NAME_INVALID", "%.300q is not a registry", repo.Registry)
	}
	action := ActionPull
	switch {
	case r.Method == http.MethodDelete && kind != "uploads":
		action = ActionDelete
	case !read || kind == "uploads":
		action = ActionPush
	}
	if err := h.authorize(r, repo.Name(), action); err != nil {
		return err
	}
	if action == ActionPull && h.MayRead != nil {
		if err := h.MayRead(r, repo, kind, rest); err != nil {
			return failf(http.StatusForbidden, "DENIED", "%v", err)
		}
	}
	if action != ActionPull && !h.isLocal(repo.Registry) {
		return failf(http.StatusForbidden, "DENIED", "%s is another registry: push to it, not to this cache", repo.Registry)
	}
	switch {
	case kind == "manifests" && read:
		return h.getManifest(w, r, repo, rest)
	case kind == "manifests" && r.Method == http.MethodPut:
		return h.putManifest(w, r, repo, rest)
	case kind == "manifests" && r.Method == http.MethodDelete:
		return h.deleteManifest(w, r, repo, rest)
	case kind == "manifests":
		return notAllowed(w, r, "GET, HEAD, PUT, DELETE")
	case kind == "blobs" && read:
		return h.getBlob(w, r, repo, rest)
	case kind == "blobs" && r.Method == http.MethodDelete:
		return h.deleteBlob(w, repo, rest)
	case kind == "blobs":
		return notAllowed(w, r, "GET, HEAD, DELETE")
	case kind == "uploads":
		return h.upload(w, r, repo, rest)
	case kind == "tags" && rest != "list":
		return failf(http.StatusNotFound, "NAME_UNKNOWN", "of tags there is only the list, tags/list")
	case kind == "tags" && read:
		tags := h.tags(repo)
		if len(tags) == 0 && !h.known(repo) {
			return failf(http.StatusNotFound, "NAME_UNKNOWN", "repository %s is not known here", repo.Name())
		}
		return writeJSON(w, r, map[string]any{"name": name, "tags": page(w, r, tags)})
	case kind == "referrers" && read:
		return h.getReferrers(w, r, repo, rest)
	}
	return notAllowed(w, r, "GET, HEAD")
}

// notAllowed refuses a method, and names those that there are.
func notAllowed(w http.ResponseWriter, r *http.Request, methods string) error {
	w.Header().Set("Allow", methods)
	return failf(http.StatusMethodNotAllowed, "UNSUPPORTED", "the method is %.20q, and may be %s", r.Method, methods)
}

// splitPath divides NAME/KIND/REST, where NAME may have slashes and even the words for the kinds in it.
func splitPath(p string) (name, kind, rest string) {
	parts := strings.Split(p, "/")
	n := len(parts)
	switch {
	case n >= 4 && parts[n-3] == "blobs" && parts[n-2] == "uploads":
		return strings.Join(parts[:n-3], "/"), "uploads", parts[n-1]
	case n >= 3 && parts[n-2] == "blobs" && parts[n-1] == "uploads":
		return strings.Join(parts[:n-2], "/"), "uploads", ""
	case n >= 3 && slices.Contains([]string{"manifests", "blobs", "tags", "referrers"}, parts[n-2]):
		return strings.Join(parts[:n-2], "/"), parts[n-2], parts[n-1]
	}
	return "", "", ""
}

func (h *Handler) authorize(r *http.Request, repo, action string) error {
	var err error
	if h.Authorize != nil {
		err = h.Authorize(r, repo, action)
	} else if action != ActionPull {
		err = errors.New("this registry is read-only")
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLogin):
		return failf(http.StatusUnauthorized, "UNAUTHORIZED", "%v", err)
	}
	return failf(http.StatusForbidden, "DENIED", "%v", err)
}

func (h *Handler) registry(r *http.Request) string {
	ns := r.URL.Query().Get("ns")
	if ns == "" || slices.Contains(h.Aliases, ns) {
		if h.Registry != "" {
			return h.Registry
		}
		return r.Host
	}
	return ns
}

func (h *Handler) isLocal(registry string) bool {
	return h.Upstream == nil || registry == h.Registry
}

func (h *Handler) sources(repo imageref.Ref) []*Source {
	if repo.Registry == h.Registry {
		return h.UpstreamLocal
	}
	if h.Upstream == nil {
		return nil
	}
	return h.Upstream(repo.Registry)
}

func writeJSON(w http.ResponseWriter, r *http.Request, v any) error {
	b := mustJSON(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(b)
	}
	return nil
}

// page applies the parameters n and last.
func page(w http.ResponseWriter, r *http.Request, all []string) []string {
	q := r.URL.Query()
	if last := q.Get("last"); last != "" {
		i, found := slices.BinarySearch(all, last)
		if found {
			i++
		}
		all = all[i:]
	}
	if n, err := strconv.Atoi(q.Get("n")); err == nil && n >= 0 && n < len(all) {
		all = all[:n]
		if n > 0 {
			q.Set("last", all[n-1])
			w.Header().Set("Link", fmt.Sprintf(`<%s?%s>; rel="next"`, r.URL.Path, q.Encode()))
		}
	}
	if all == nil {
		all = []string{}
	}
	return all
}

func (h *Handler) getManifest(w http.ResponseWriter, r *http.Request, repo imageref.Ref, identifier string) error {
	ref := repo
	if d, err := imageref.ParseDigest(identifier); err == nil {
		ref.Digest = d
	} else if ref.Tag = identifier; !imageref.ValidTag(identifier) {
		return failf(http.StatusBadRequest, "MANIFEST_INVALID", "%.200q is neither a tag nor a digest", identifier)
	}
	sources := h.sources(repo)
	if ref.Digest != "" && !h.linked(repo, ref.Digest) {
		// It may be here for another repository; whoever asks must be able to get it from this one.
		if len(sources) == 0 {
			return failf(http.StatusNotFound, "MANIFEST_UNKNOWN", "%s has no manifest %s", repo.Name(), ref.Digest)
		}
		if _, err := askAny(r.Context(), repo, "manifests/"+ref.Digest.String(), sources); err != nil {
			return unknown(err, "MANIFEST_UNKNOWN")
		}
	}
	var m *manifest
	var err error
	if ref.Digest != "" && len(sources) > 0 && !h.isLocal(repo.Registry) && !h.Store.named(repo, ref.Digest) {
		// Only an index names it, perhaps without having it: whoever has it can send it.
		m, err = h.Store.ask(r.Context(), ref, identifier, sources)
	} else {
		m, err = h.Store.manifest(r.Context(), ref, identifier, sources)
	}
	if ledger := h.Store.depot.own(repo) && h.Store.depot.ledger != nil; ledger && r.Method == http.MethodHead &&
		errors.As(err, new(*DepotError)) && h.Store.depot.away(repo) == nil {
		// As of a blob: whoever asks whether to push it is to push it.
		return failf(http.StatusNotFound, "MANIFEST_UNKNOWN", "%v", err)
	}
	if err != nil {
		return unknown(err, "MANIFEST_UNKNOWN")
	}
	if len(sources) > 0 {
		// Named by digest too: what is below it may then be had from here, also when the tag has moved on.
		for _, n := range []imageref.Ref{ref, repo.Pinned(m.desc.Digest)} {
			if err := h.Store.putName(n, name{Digest: m.desc.Digest, Cached: m.fetched}); err != nil {
				return err
			}
		}
	} else {
		h.Store.used(ref)
	}
	w.Header().Set("Content-Type", m.desc.MediaType)
	w.Header().Set("Docker-Content-Digest", m.desc.Digest.String())
	w.Header().Set("Content-Length", strconv.Itoa(len(m.raw)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(m.raw)
	}
	return nil
}

func unknown(err error, code string) error {
	if errors.Is(err, ErrNotFound) {
		return failf(http.StatusNotFound, code, "%v", err)
	}
	return err
}

// askAny asks whether one of the sources has a manifest or blob, and how large it is. Unless all of them know that they have not, nobody is
// told that it does not exist.
func askAny(ctx context.Context, repo imageref.Ref, path string, sources []*Source) (size int64, err error) {
	for _, src := range sources {
		n, failed := src.known(ctx, repo, path)
		if failed == nil {
			return n, nil
		}
		if err == nil || errors.Is(err, ErrNotFound) {
			err = failed
		}
	}
	return 0, err
}

// link finds a blob among those that a repository's images, or its unfinished pushes, refer to.
func (h *Handler) link(repo imageref.Ref, d digest.Digest) (ocispec.Descriptor, bool) {
	s := h.Store
	s.mu.Lock()
	_, granted := s.grants[repo.Name()][d]
	s.mu.Unlock()
	if granted {
		n, _ := stored(s, d)
		return ocispec.Descriptor{Digest: d, Size: n}, true
	}
	for desc := range s.content(repo) {
		if desc.Digest == d {
			return desc, true
		}
	}
	return ocispec.Descriptor{}, false
}

func (h *Handler) linked(repo imageref.Ref, d digest.Digest) bool {
	_, ok := h.link(repo, d)
	return ok
}

func (h *Handler) known(repo imageref.Ref) bool { return len(h.Store.namesOf(repo)) > 0 }

func (h *Handler) tags(repo imageref.Ref) []string {
	var out []string
	for k := range h.Store.namesOf(repo) {
		if imageref.ValidTag(k) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// catalog lists the repositories that may be seen.
func (h *Handler) catalog(r *http.Request, see func(repository string) bool) []string {
	registry := h.registry(r)
	return slices.DeleteFunc(h.repositories(registry, false), func(name string) bool {
		return !see(imageref.Ref{Registry: registry, Repository: name}.Name())
	})
}

// repositories lists those of a registry that have an image here or, if begun, a blob that is part of none yet.
func (h *Handler) repositories(registry string, begun bool) (out []string) {
	s := h.Store
	s.mu.Lock()
	for k := range s.names {
		if ref, err := imageref.Parse(k); err == nil && ref.Registry == registry {
			out = append(out, ref.Repository)
		}
	}
	for name, g := range s.grants {
		if repository, ok := strings.CutPrefix(name, registry+"/"); ok && begun && len(g) > 0 {
			out = append(out, repository)
		}
	}
	s.mu.Unlock()
	slices.Sort(out)
	return slices.Compact(out)
}

// Holds reports whether a manifest or blob, named by its digest, is an image or a part of it. Manifests of the image that are not here are
// fetched.
func (h *Handler) Holds(ctx context.Context, image imageref.Ref, id string) bool {
	want, err := imageref.ParseDigest(id)
	if err != nil {
		return false
	}
	top := image.Digest
	if top == "" {
		top, _ = h.Store.Lookup(image) // what its tag was last resolved to
	}
	repo := imageref.Ref{Registry: image.Registry, Repository: image.Repository}
	var holds func(d digest.Digest, manifest bool) bool
	holds = func(d digest.Digest, manifest bool) bool {
		if d == want {
			return true
		}
		if !manifest || d == "" {
			return false
		}
		m, err := h.Store.part(ctx, repo.Pinned(d), d, h.sources(repo))
		return err == nil && slices.ContainsFunc(m.children(), func(c ocispec.Descriptor) bool { return holds(c.Digest, m.index != nil) })
	}
	return holds(top, true)
}
