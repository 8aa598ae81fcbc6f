package gitrepo

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// Two that share a copy, which those of repositories with the same name do, each get the commits of their own repository and branch.
// What one has taken, the other does not replace.
func TestSharedCopy(t *testing.T) {
	a, b := newOrigin(t), newOrigin(t)
	dir := filepath.Join(t.TempDir(), "copy")
	a.commit("first of a")
	b.commit("first of b")
	b.git("branch", "next")
	b.commit("second of b")
	shared := func(o *origin, branch, path string) *Repository {
		return o.open(func(opt *Options) { opt.Dir, opt.Branch, opt.Path = dir, branch, path })
	}
	var wg sync.WaitGroup
	var turns sync.Mutex
	for subject, r := range map[string]*Repository{"first of a": shared(a, "main", ""), "second of b": shared(b, "main", ""),
		"first of b": shared(b, "next", "")} {
		wg.Go(func() {
			turns.Lock() // git itself refuses some of what happens at the same time
			if _, err := r.Fetch(t.Context()); err != nil {
				t.Errorf("fetch %q: %v", subject, err)
			}
			turns.Unlock()
			for range 5 {
				if c, err := r.Fetch(t.Context()); err == nil && c.Subject != subject {
					t.Errorf("%q in place of %q", c.Subject, subject)
				}
			}
		})
	}
	wg.Wait()
	first := shared(a, "main", "")
	if err := first.Accept(t.Context(), first.mustFetch(t), false); err != nil {
		t.Fatalf("take a commit: %v", err)
	}
	for _, other := range []*Repository{shared(b, "main", ""), shared(a, "main", "sub")} {
		c := other.mustFetch(t)
		if err := other.Accept(t.Context(), c, false); skerry.AsError(err).Code != skerry.CodeConflict {
			t.Errorf("unexpected: %v", err)
		}
	}
	if err := first.Accept(t.Context(), first.mustFetch(t), false); err != nil {
		t.Errorf("take it again: %v", err)
	}
	moved := shared(b, "main", "")
	c := moved.mustFetch(t)
	err := moved.Accept(t.Context(), c, true)
	if err != nil || moved.Accepted(t.Context()) != c.ID || moved.Accept(t.Context(), c, false) != nil {
		t.Errorf("it may not move: %v", err)
	}
}

// A few trees that hold each other are more files than anybody lists. That is refused soon.
func TestTreeOfTrees(t *testing.T) {
	o := newOrigin(t)
	o.write("a.yaml", "x")
	o.commit("one")
	tree := o.git("rev-parse", "HEAD^{tree}")
	for range 8 {
		var entries strings.Builder
		for i := range 16 {
			fmt.Fprintf(&entries, "040000 tree %s\t%x\n", tree, i)
		}
		o.write("entries", entries.String())
		tree = o.git("-c", "alias.make=!git mktree <entries", "make")
	}
	o.git("update-ref", "refs/heads/main", o.git("commit-tree", tree, "-m", "many"))
	r := o.open(nil)
	c := r.mustFetch(t)
	began := time.Now()
	if _, _, err := r.Files(t.Context(), c); skerry.AsError(err).Code != skerry.CodeTooLarge {
		t.Errorf("unexpected: %v", err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("it took %s", took)
	}
}

// What a server complains of comes in one line that moves no terminal.
func TestComplaintOfAServer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
		text := "ERR no \x1b]0;owned\x07 such \u202e thing\n"
		fmt.Fprintf(w, "%04x# service=git-upload-pack\n0000%04x%s", 4+len("# service=git-upload-pack\n"), 4+len(text), text)
	}))
	defer server.Close()
	_, err := newOrigin(t).open(func(opt *Options) { opt.URL = server.URL + "/a.git" }).Fetch(t.Context())
	if err == nil || !strings.Contains(err.Error(), "such") || strings.ContainsAny(err.Error(), "\x1b\x07\n\u202e") {
		t.Errorf("unexpected: %q", err)
	}
}

// A shallow clone is refused, also where it took the place of what was followed: git leaves the branch as it was, and succeeds.
func TestShallow(t *testing.T) {
	o := newOrigin(t)
	o.commit("first")
	o.commit("second")
	parent := t.TempDir()
	shallow := filepath.Join(parent, "clone")
	o.git("clone", "--quiet", "--depth=1", "file://"+o.dir, shallow)
	r := o.open(func(opt *Options) { opt.URL = shallow })
	if _, err := r.Fetch(t.Context()); skerry.AsError(err).Code != skerry.CodeUnsupported {
		t.Errorf("unexpected: %v", err)
	}
	o.git("-C", shallow, "fetch", "--quiet", "--unshallow")
	old := r.mustFetch(t)
	o.commit("third")
	o.git("-C", parent, "clone", "--quiet", "--depth=1", "file://"+o.dir, "again")
	o.git("-C", parent, "-c", "alias.swap=!rm -r clone && mv again clone", "swap")
	if c, err := r.Fetch(t.Context()); err == nil || skerry.AsError(err).Code != skerry.CodeUnsupported {
		t.Errorf("the branch is taken to be at %q still, as at %q: %v", c.Subject, old.Subject, err)
	}
}
