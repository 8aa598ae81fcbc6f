package artifact

import (
	"strings"
	"testing"

	"skerry.dev/skerry/artifact/imageref"
)

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
			if _, err := imageref.ParseDigest(c.Digest.String()); err != nil || c.Size < 0 {
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
