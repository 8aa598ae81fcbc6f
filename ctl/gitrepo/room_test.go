package gitrepo

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
)

// TestCopyIsBounded reads from repositories that are larger than there is room for: at once, and by other content each time.
func TestCopyIsBounded(t *testing.T) {
	o := newOrigin(t)
	fill := func(n int) { o.write("blob", string(random(n))) }
	o.write("a.yaml", "a: 1\n")
	o.commit("small")
	r := o.open(func(opt *Options) { opt.URL = "file://" + opt.URL }) // else git links the objects
	r.most = 1 << 20
	bounded := func(when string) {
		t.Helper()
		if n, err := r.takes(); err != nil || n > 2<<20 {
			t.Errorf("%s: the copy takes %s of %s: %v", when, skerry.Bytes(n), skerry.Bytes(r.most), err)
		}
	}
	r.mustFetch(t)
	for range 6 {
		fill(300 << 10)
		o.commit("other content", "--amend")
		r.mustFetch(t)
		bounded("rewritten")
	}
	fill(3 << 20)
	o.commit("large", "--amend")
	for range 2 {
		if _, err := r.Fetch(t.Context()); err == nil { // it was there before anybody looked
			_, err = r.Fetch(t.Context())
			if code := skerry.AsError(err).Code; code != skerry.CodeTooLarge {
				t.Errorf("a copy that is too large: %v", err)
			}
		}
	}
}

// TestFetchThatDoesNotEnd ends one that brings more and more, and removes what it left.
func TestFetchThatDoesNotEnd(t *testing.T) {
	o := newOrigin(t)
	o.write("a.yaml", "a: 1\n")
	o.commit("small")
	// A program in the place of git's that sends: what ssh would start.
	script := filepath.Join(t.TempDir(), "git-upload-pack")
	pack := filepath.Join(o.dir, ".git")
	r := o.open(func(opt *Options) { opt.URL = "ssh://localhost" + pack })
	r.most = 1 << 20
	endless := "#!/bin/sh\ncd " + quoted(filepath.Join(r.opt.Dir, "objects", "pack")) + "\n" +
		`while :; do head -c 100000 /dev/urandom > tmp_pack_$$.$n; n=$((n+1)); sleep 0.05; done` + "\n"
	if err := os.WriteFile(script, []byte(endless), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, v := range r.env {
		if strings.HasPrefix(v, "GIT_SSH_COMMAND=") {
			r.env[i] = "GIT_SSH_COMMAND=" + quoted(script)
		}
	}
	old := filepath.Join(r.opt.Dir, "objects", "pack", "tmp_pack_old")
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // a watchdog
	defer cancel()
	if _, err := r.Fetch(ctx); skerry.AsError(err).Code != skerry.CodeTooLarge {
		t.Errorf("a fetch without an end: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(r.opt.Dir, "objects", "pack", "tmp_*")); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}

func random(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.Read(out)
	return out
}
