package imageref

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	hex := strings.Repeat("a", 64)
	for in, want := range map[string]string{
		"nginx":                         "docker.io/library/nginx:latest",
		"nginx:1.2":                     "docker.io/library/nginx:1.2",
		"team/app":                      "docker.io/team/app:latest",
		"index.docker.io/library/a":     "docker.io/library/a:latest",
		"localhost/a":                   "localhost/a:latest",
		"localhost:5000/a/b:v1":         "localhost:5000/a/b:v1",
		"10.0.0.1:5000/a":               "10.0.0.1:5000/a:latest",
		"[::1]:5000/a:x":                "[::1]:5000/a:x",
		"reg.example/a__b/c-d.e_f":      "reg.example/a__b/c-d.e_f:latest",
		"a@sha256:" + hex:               "docker.io/library/a@sha256:" + hex,
		"r.io/a:1@sha256:" + hex:        "r.io/a:1@sha256:" + hex,
		"a/manifests/blobs/uploads/x:1": "docker.io/a/manifests/blobs/uploads/x:1",
	} {
		r, err := Parse(in)
		if err != nil || r.String() != want {
			t.Errorf("%q is %q, want %q (%v)", in, r.String(), want, err)
		}
	}
	for _, in := range []string{"", ":", "a:", "a:-x", "A", "a//b", "/a", "a/", "a..b", "-a", "a-", "a b", "a@", "a@sha256:abc", "a@md5:" + hex,
		"r.io/", "..", "a/../b", "r_x.io/a", "r.io:x/a", "[::1/a", "a:" + strings.Repeat("x", 129), strings.Repeat("a", 300), "a\n", "é", "a:tag/b:c"} {
		if r, err := Parse(in); err == nil {
			t.Errorf("%q was taken as %s", in, r)
		}
	}
	if r, _ := Parse("nginx:1"); r.Familiar() != "nginx:1" {
		t.Errorf("familiar form %s", r.Familiar())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"nginx", "localhost:5000/a/b:v1", "[::1]:5000/a:x", "a@sha256:" + strings.Repeat("0", 64), "a/../b", "a__b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(r.String())
		if err != nil || again != r {
			t.Fatalf("%q is %+v, and that is %+v (%v)", s, r, again, err)
		}
		for _, part := range strings.Split(r.Repository, "/") {
			if part == "" || part == "." || part == ".." {
				t.Fatalf("%q gives repository %q", s, r.Repository)
			}
		}
	})
}
