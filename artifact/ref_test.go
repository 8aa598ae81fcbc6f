package artifact

import (
	"strings"
	"testing"
)

func TestParseRef(t *testing.T) {
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
		r, err := ParseRef(in)
		if err != nil || r.String() != want {
			t.Errorf("%q is %q, want %q (%v)", in, r.String(), want, err)
		}
	}
	for _, in := range []string{"", ":", "a:", "a:-x", "A", "a//b", "/a", "a/", "a..b", "-a", "a-", "a b", "a@", "a@sha256:abc", "a@md5:" + hex,
		"r.io/", "..", "a/../b", "r_x.io/a", "r.io:x/a", "[::1/a", "a:" + strings.Repeat("x", 129), strings.Repeat("a", 300), "a\n", "é", "a:tag/b:c"} {
		if r, err := ParseRef(in); err == nil {
			t.Errorf("%q was taken as %s", in, r)
		}
	}
	if r, _ := ParseRef("nginx:1"); r.Familiar() != "nginx:1" {
		t.Errorf("familiar form %s", r.Familiar())
	}
}

func FuzzParseRef(f *testing.F) {
	for _, s := range []string{"nginx", "localhost:5000/a/b:v1", "[::1]:5000/a:x", "a@sha256:" + strings.Repeat("0", 64), "a/../b", "a__b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRef(s)
		if err != nil {
			return
		}
		again, err := ParseRef(r.String())
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

func TestPlatforms(t *testing.T) {
	p := func(s string) Platform {
		p, err := ParsePlatform(s)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		host, image string
		runs        bool
	}{
		{"linux/amd64", "linux/amd64", true},
		{"amd64", "linux/x86_64", true},
		{"linux/arm64", "linux/arm64/v8", true},
		{"linux/arm/v7", "linux/arm/v6", true},
		{"linux/arm/v6", "linux/arm/v7", false},
		{"linux/amd64", "linux/arm64", false},
		{"linux/amd64", "windows/amd64", false},
		{"linux/amd64", "linux/amd64/v3", true},
	} {
		if got := p(c.host).runs(p(c.image)) > 0; got != c.runs {
			t.Errorf("%s on %s: %v", c.image, c.host, got)
		}
	}
	if p("linux/arm/v7").runs(p("linux/arm/v7")) <= p("linux/arm/v7").runs(p("linux/arm/v6")) {
		t.Error("the older variant is preferred")
	}
	for _, s := range []string{"", "/", "linux/", "linux/a/b/c", "Linux/amd64", "linux/../x"} {
		if _, err := ParsePlatform(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	hex := strings.Repeat("a", 64)
	desc := `{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:` + hex + `","size":3}`
	f.Add([]byte(`{"schemaVersion":2,"config":` + desc + `,"layers":[` + desc + `]}`))
	f.Add([]byte(`{"schemaVersion":2,"mediaType":"` + dockerList + `","manifests":[` + desc[:len(desc)-1] + `,"platform":{"os":"linux","architecture":"arm64"}}]}`))
	f.Add([]byte(`{"schemaVersion":1,"fsLayers":[]}`))
	f.Add([]byte(`{"schemaVersion":2,"manifests":[],"layers":[]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := parseManifest(raw)
		if err != nil {
			return
		}
		if (m.image == nil) == (m.index == nil) {
			t.Fatal("neither or both")
		}
		for _, c := range m.children() {
			if _, err := parseDigest(c.Digest.String()); err != nil || c.Size < 0 {
				t.Fatalf("descriptor %+v", c)
			}
		}
		if m.index != nil {
			m.choose(HostPlatform())
		}
	})
}

func TestParseManifestRefuses(t *testing.T) {
	hex := strings.Repeat("a", 64)
	good := `{"digest":"sha256:` + hex + `","size":3}`
	for name, raw := range map[string]string{
		"no JSON":       "x",
		"schema 1":      `{"schemaVersion":1,"fsLayers":[]}`,
		"both":          `{"schemaVersion":2,"manifests":[],"layers":[],"config":` + good + `}`,
		"index layers":  `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","layers":[]}`,
		"odd type":      `{"schemaVersion":2,"mediaType":"text/html"}`,
		"path digest":   `{"schemaVersion":2,"config":{"digest":"sha256:../../etc/passwd","size":3},"layers":[]}`,
		"negative size": `{"schemaVersion":2,"config":{"digest":"sha256:` + hex + `","size":-3},"layers":[]}`,
		"huge config":   `{"schemaVersion":2,"config":{"digest":"sha256:` + hex + `","size":99999999999},"layers":[]}`,
		"huge layer":    `{"schemaVersion":2,"config":` + good + `,"layers":[{"digest":"sha256:` + hex + `","size":9223372036854775807}]}`,
	} {
		if _, err := parseManifest([]byte(raw)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func TestParseChallenge(t *testing.T) {
	scheme, p := parseChallenge(`Bearer realm="https://auth.example/token?x=1,2",service="reg", scope="repository:a:pull,push", error=invalid`)
	if scheme != "bearer" || p["realm"] != "https://auth.example/token?x=1,2" || p["service"] != "reg" || p["scope"] != "repository:a:pull,push" || p["error"] != "invalid" {
		t.Errorf("%s %v", scheme, p)
	}
	if s, p := parseChallenge("Basic"); s != "basic" || len(p) != 0 {
		t.Errorf("%s %v", s, p)
	}
}
