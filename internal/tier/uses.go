package tier

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/decide/apps"
)

// FindUses lists what a role's images are used for.
type FindUses func(ctx context.Context) (apps.ImageUses, error)

// KeepImages has a role's registry spare the images that something uses: when it makes room for others, and when somebody deletes one.
func KeepImages(r Registry, find FindUses) {
	m, ok := r.(*Images)
	if !ok {
		return
	}
	m.uses.Store(&find)
	m.Store.Cache.KeepInUse(func() (out []digest.Digest) {
		uses, _ := m.usesByDigest(context.Background())
		for d, use := range uses {
			if len(use.UsedBy) > 0 {
				out = append(out, d)
			}
		}
		return out
	})
}

// findUses lists what images are used for, each by what it is called here, and by its digest where that is known. nil: nobody knows.
func (m *Images) findUses(ctx context.Context) (map[imageref.Ref]*apps.ImageUse, error) {
	find := m.uses.Load()
	if find == nil {
		return nil, nil
	}
	uses, err := (*find)(ctx)
	if err != nil {
		return nil, err
	}
	out := map[imageref.Ref]*apps.ImageUse{}
	for pinned, use := range uses {
		ref, err := imageref.Parse(pinned)
		if err != nil {
			continue
		}
		if local, anywhere := imageref.Unnamed(pinned, ref); anywhere {
			ref = local
		}
		if ref.Digest != "" {
			ref = ref.Pinned(ref.Digest)
		}
		if out[ref] == nil {
			out[ref] = &apps.ImageUse{}
		}
		out[ref].Add(use)
	}
	return out, nil
}

// usesByDigest lists what images are used for. One that is named by a tag is what the tag means here.
func (m *Images) usesByDigest(ctx context.Context) (map[digest.Digest]*apps.ImageUse, error) {
	uses, err := m.findUses(ctx)
	if uses == nil || err != nil {
		return nil, err
	}
	out := map[digest.Digest]*apps.ImageUse{}
	for ref, use := range uses {
		d := ref.Digest
		if d == "" {
			if d, _ = m.Store.Lookup(ref); d == "" {
				continue
			}
		}
		if out[d] == nil {
			out[d] = &apps.ImageUse{}
		}
		out[d].Add(use)
	}
	return out, nil
}

// held are the images that requests under way are about to use, and those that others are deleting: an image is never both.
type held struct {
	mu     sync.Mutex // before the store's; the role is asked while it is held, and nothing that may take longer
	images map[imageref.Ref]int
	going  map[imageref.Ref]int
	// holders counts the requests under way that may hold images, and gone has what was deleted while there were any: they may have
	// found it before.
	holders int
	gone    map[imageref.Ref]bool
}

type heldKey struct{}

// Hold has the images that are resolved in a context spared until release is called: by then, what was made of them says that it uses them.
func (m *Images) Hold(ctx context.Context) (with context.Context, release func()) {
	mine := &[]imageref.Ref{}
	m.held.mu.Lock()
	m.held.holders++
	m.held.mu.Unlock()
	return context.WithValue(ctx, heldKey{}, mine), sync.OnceFunc(func() {
		m.held.mu.Lock()
		defer m.held.mu.Unlock()
		if m.held.holders--; m.held.holders == 0 {
			m.held.gone = nil
		}
		for _, ref := range *mine {
			if m.held.images[ref]--; m.held.images[ref] <= 0 {
				delete(m.held.images, ref)
			}
		}
	})
}

// hold holds an image of the built-in registry for a request, and reports whether it is still there. One that is not here may be the
// parent's.
func (m *Images) hold(ctx context.Context, repo imageref.Ref, d digest.Digest) bool {
	mine, ok := ctx.Value(heldKey{}).(*[]imageref.Ref)
	if !ok {
		return true
	}
	m.held.mu.Lock()
	defer m.held.mu.Unlock()
	ref := repo.Pinned(d)
	if m.held.going[ref] > 0 || m.held.gone[ref] && !m.Store.Has(repo, d) {
		return false
	}
	if m.held.images == nil {
		m.held.images = map[imageref.Ref]int{}
	}
	m.held.images[ref]++
	*mine = append(*mine, ref)
	return true
}

type hiddenKey struct{}

// WithHidden gives a request what says which users of an image, such as namespace/app/service, its own user may not see.
func WithHidden(ctx context.Context, hidden func(user string) bool) context.Context {
	return context.WithValue(ctx, hiddenKey{}, hidden)
}

// delete deletes what nothing uses, and with the query parameter force also what something does. Whoever applies something meanwhile either
// holds the image already, so that it stays, or does not find it any more.
func (m *Images) delete(r *http.Request, what artifact.Deletion, remove func() error) error {
	done, err := m.mayGo(r.Context(), what, r.URL.Query().Get("force") == "true")
	if err != nil {
		return err
	}
	defer done()
	return remove()
}

// mayGo refuses a deletion, or has nobody hold what goes until the function that it gives is called.
func (m *Images) mayGo(ctx context.Context, what artifact.Deletion, force bool) (done func(), err error) {
	m.held.mu.Lock()
	defer m.held.mu.Unlock()
	if !force {
		uses, err := m.findUses(ctx)
		if err != nil {
			return nil, &artifact.InUseError{Why: fmt.Sprintf("it is not known what uses it: %v", err)}
		}
		if why := m.inUse(ctx, uses, what); why != "" {
			return nil, &artifact.InUseError{Why: why}
		}
	}
	if m.held.going == nil {
		m.held.going = map[imageref.Ref]int{}
	}
	for _, d := range what.Lost {
		m.held.going[what.Repo.Pinned(d)]++
	}
	return func() {
		m.held.mu.Lock()
		defer m.held.mu.Unlock()
		for _, d := range what.Lost {
			ref := what.Repo.Pinned(d)
			if m.held.going[ref]--; m.held.going[ref] <= 0 {
				delete(m.held.going, ref)
			}
			if m.held.holders > 0 {
				if m.held.gone == nil {
					m.held.gone = map[imageref.Ref]bool{}
				}
				m.held.gone[ref] = true
			}
		}
	}, nil
}

// inUse says what uses something that is about to be deleted, or "".
func (m *Images) inUse(ctx context.Context, uses map[imageref.Ref]*apps.ImageUse, what artifact.Deletion) string {
	all, taken := &apps.ImageUse{}, false
	see := func(ref imageref.Ref) {
		taken = taken || m.held.images[ref] > 0
		if use := uses[ref]; use != nil {
			all.Add(use)
		}
	}
	for _, d := range what.Lost {
		see(what.Repo.Pinned(d))
	}
	for _, tag := range what.Tags { // of a service whose image nobody could look up when it was applied
		see(imageref.Ref{Registry: what.Repo.Registry, Repository: what.Repo.Repository, Tag: tag})
	}
	hidden, _ := ctx.Value(hiddenKey{}).(func(string) bool)
	var says []string
	other := 0
	add := func(format, user string) {
		if hidden != nil && hidden(user) {
			other++
			return
		}
		says = append(says, fmt.Sprintf(format, user+versions(all.Versions[user])))
	}
	for _, user := range all.UsedBy {
		add("%s uses it", user)
	}
	for _, user := range all.KeptFor {
		if !slices.Contains(all.UsedBy, user) {
			add("%s can go back to it", user)
		}
	}
	if other > 0 {
		says = append(says, fmt.Sprintf("%d that you may not see use it", other))
	}
	if taken {
		says = append(says, "an application that is being applied uses it")
	}
	return strings.Join(says, "; ")
}

// versions says which versions of a service's application it is about.
func versions(list []skerry.Generation) string {
	var out []string
	for _, g := range list {
		if g > 0 {
			out = append(out, fmt.Sprint(g))
		}
	}
	switch len(out) {
	case 0:
		return ""
	case 1:
		return " (version " + out[0] + ")"
	}
	return " (versions " + strings.Join(out, ", ") + ")"
}
