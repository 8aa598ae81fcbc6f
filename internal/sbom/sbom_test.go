package sbom

import (
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const spdx = `{"spdxVersion": "SPDX-2.3", "packages": [
	{"name": "debian", "versionInfo": "12"},
	{"name": "libssl3", "versionInfo": "3.0.11-1~deb12u2", "externalRefs": [
		{"referenceCategory": "SECURITY", "referenceType": "cpe23Type", "referenceLocator": "cpe:2.3:a:x:y:1:*:*:*:*:*:*:*"},
		{"referenceType": "purl",
			"referenceLocator": "pkg:deb/debian/libssl3@3.0.11-1~deb12u2?upstream=openssl%403.0.11-1~deb12u2"}]}]}`

const cyclonedx = `{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": [
	{"type": "library", "name": "yaml", "group": "go.yaml.in", "version": "v2.4.3"},
	{"type": "library", "name": "x", "version": "old", "purl": "pkg:golang/golang.org/x/net@v0.61.0", "components": [
		{"type": "library", "name": "busybox", "version": "1.36.1-r2", "purl": "pkg:apk/alpine/busybox@1.36.1-r2"}]}]}`

func names(list []Package) (out []string) {
	for _, p := range list {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", p.Kind, p.Name, p.Version, p.Source)))
	}
	return out
}

func TestParse(t *testing.T) {
	debian := []string{"debian 12", "deb libssl3 3.0.11-1~deb12u2 openssl"}
	others := []string{"go.yaml.in/yaml v2.4.3", "golang golang.org/x/net v0.61.0", "apk busybox 1.36.1-r2"}
	statement := `{"_type": "https://in-toto.io/Statement/v1", "predicateType": "https://spdx.dev/Document", "predicate": ` + spdx + `}`
	payload := base64.StdEncoding.EncodeToString([]byte(statement))
	envelope := `{"payloadType": "application/vnd.in-toto+json", "payload": "` + payload + `", "signatures": []}`
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"SPDX":      {spdx, debian},
		"CycloneDX": {cyclonedx, others},
		"a statement about an image, as BuildKit writes it": {statement, debian},
		"a signed one, as cosign writes it":                 {envelope, debian},
		"the same in a bundle":                              {`{"mediaType": "x", "dsseEnvelope": ` + envelope + `}`, debian},
	} {
		got, err := Parse([]byte(c.text))
		if want := slices.Clone(c.want); err != nil || !slices.EqualFunc(trim(names(got)), trim(want), func(a, b string) bool { return a == b }) {
			t.Errorf("%s: %q, %v, want %q", name, names(got), err, want)
		}
	}
}

func trim(list []string) (out []string) {
	for _, s := range list {
		out = append(out, strings.Join(strings.Fields(s), " "))
	}
	return out
}

func TestParseRefuses(t *testing.T) {
	deep := spdx
	for range 10 {
		deep = `{"predicate": ` + deep + `}`
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "SPDXVersion: SPDX-2.3", "another document": `{"a": 1}`, "a list": `[]`, "too many envelopes": deep,
		"a payload that is none": `{"payloadType": "application/vnd.in-toto+json", "payload": "!"}`,
		"another payload":        `{"payloadType": "text/plain", "payload": ""}`,
	} {
		if got, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s is read as %q", name, names(got))
		}
	}
	if _, err := Parse([]byte(`{"a": 1}`)); !errors.Is(err, ErrNotSBOM) {
		t.Errorf("another document: %v", err)
	}
	if _, err := Parse(make([]byte, MaxSize+1)); err == nil {
		t.Error("a document that is too large is read")
	}
	many := `{"bomFormat": "CycloneDX", "components": [` + strings.Repeat(`{"name": "a"},`, maxPackages) + `{"name": "a"}]}`
	if _, err := Parse([]byte(many)); err == nil {
		t.Error("too many packages are read")
	}
}

// A document that is small stands for no more in memory than one that is large.
func TestParseBoundsWhatShortTextsStandFor(t *testing.T) {
	fill := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item+",", 4<<20/len(item)) + item + tail)
	}
	nested := strings.Repeat(`{"components": [`, 20) + strings.Repeat("]}", 20)
	for name, data := range map[string][]byte{
		"packages":             fill(`{"spdxVersion": "SPDX-2.3", "packages": [`, `{}`, `]}`),
		"packages of nothing":  fill(`{"spdxVersion": "SPDX-2.3", "packages": [`, `null`, `]}`),
		"numbers":              fill(`{"spdxVersion": "SPDX-2.3", "packages": [`, `0`, `]}`),
		"components":           fill(`{"bomFormat": "CycloneDX", "components": [`, `{}`, `]}`),
		"components within":    fill(`{"bomFormat": "CycloneDX", "components": [{"components": [`, `{}`, `]}]}`),
		"components in others": []byte(`{"bomFormat": "CycloneDX", "components": [` + nested + `]}`),
		"no list":              []byte(`{"bomFormat": "CycloneDX", "components": {}}`),
		"references":           fill(`{"spdxVersion": "SPDX-2.3", "packages": [{"externalRefs": [`, `0`, `]}]}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got, err := Parse(data)
		runtime.ReadMemStats(&after)
		if err == nil || errors.Is(err, ErrNotSBOM) {
			t.Errorf("%s: %d packages are read, %v", name, len(got), err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 150<<20 {
			t.Errorf("%s: it took %d MiB", name, n>>20)
		}
	}
	q, _ := ParseQuery("a@<2")
	if _, err := q.Match(Package{Name: "a", Version: strings.Repeat("1", maxVersion+1)}); err == nil {
		t.Error("a version without end is compared")
	}
}

// A package is compared by the version of what it is found by.
func TestMatchOfSources(t *testing.T) {
	located := func(purl string) Package {
		p := Package{Name: "x", Version: "0"}
		p.locate(purl)
		return p
	}
	dmsetup := located("pkg:deb/debian/dmsetup@2%3A1.02.185-2?upstream=lvm2%402.03.16-2")
	ssl := located("pkg:rpm/rhel/openssl-libs@3.0.7-1.el9?epoch=1&upstream=openssl-3.0.7-1.el9.src.rpm")
	for _, c := range []struct {
		query string
		p     Package
		want  bool
	}{
		{"lvm2@<2.03.20", dmsetup, true}, {"lvm2@<2.03.10", dmsetup, false},
		{"dmsetup@<2:1.02.200", dmsetup, true}, {"dmsetup@<2.03.20", dmsetup, false},
		{"openssl-libs@>=1:3.0.0", ssl, true}, {"openssl-libs@<1:3.0.8", ssl, true}, {"openssl-libs@<3.0.8", ssl, false},
		{"openssl", ssl, true}, {"openssl@<1:3.0.8", ssl, true},
	} {
		q, err := ParseQuery(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := q.Match(c.p); err != nil || got != c.want {
			t.Errorf("%s of %+v: %v, %v", c.query, c.p, got, err)
		}
	}
}

func TestMatch(t *testing.T) {
	ssl := Package{Name: "libssl3", Version: "3.0.11-1~deb12u2", Source: "openssl", Kind: "deb"}
	net := Package{Name: "golang.org/x/net", Version: "v0.61.0", Kind: "golang"}
	angular := Package{Name: "@angular/core", Version: "17.0.0-rc.1", Kind: "npm"}
	for _, c := range []struct {
		query string
		p     Package
		want  bool
	}{
		{"libssl3", ssl, true}, {"openssl", ssl, true}, {"OpenSSL", ssl, true}, {"ssl", ssl, false}, {"libssl", ssl, false},
		{"openssl@<3.0.15", ssl, true}, {"openssl@<3.0.11", ssl, false}, {"openssl@>=3.0,<3.0.15", ssl, true}, {"openssl@>=3.1,<4", ssl, false},
		{"openssl@3.0.11-1~deb12u2", ssl, true}, {"openssl@=3.0.11-1~deb12u2", ssl, true}, {"openssl@<3.0.11-1~deb12u2", ssl, false},
		{"openssl@<3.0.11-1~deb12u3", ssl, true}, {"openssl@<3.0.11-1", ssl, true}, {"openssl@<=3.0.11-1~deb12u2", ssl, true},
		{"golang.org/x/net@<0.62.0", net, true}, {"net@<0.62.0", net, true},
		{"golang.org/x/net@>0.61.0", net, false}, {"golang.org/x/net@0.61.0", net, true},
		{"@angular/core", angular, true}, {"@angular/core@<17.0.0", angular, true}, {"@angular/core@>=17.0.0", angular, false},
		{"thing@<10", Package{Name: "thing", Version: "9.1"}, true}, // numbers, not letters
	} {
		q, err := ParseQuery(c.query)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if got, err := q.Match(c.p); err != nil || got != c.want {
			t.Errorf("%s of %s %s: %v, %v", c.query, c.p.Name, c.p.Version, got, err)
		}
	}
	q, _ := ParseQuery("thing@<10")
	if got, err := q.Match(Package{Name: "thing"}); err == nil {
		t.Errorf("a package without a version is compared: %v", got)
	}
	for _, s := range []string{"", "@", "@1", "a b", "openssl@", "openssl@<", "openssl@<3,", "openssl@<<3", "<3", strings.Repeat("a", 600)} {
		if q, err := ParseQuery(s); err == nil && s != "@1" {
			t.Errorf("%q is read as %v", s, q)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(spdx))
	f.Add([]byte(cyclonedx))
	f.Add([]byte(`{"predicate": {"predicate": {}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data)
		if err != nil {
			return
		}
		for _, query := range []string{"openssl@<3.0.15", "net@>=1,<2"} {
			q, err := ParseQuery(query)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				_, _ = q.Match(p)
			}
		}
	})
}

func FuzzQuery(f *testing.F) {
	f.Add("openssl@>=3.0,<3.0.15", "3.0.11-1~deb12u2", "deb")
	f.Add("@angular/core@1", "1", "npm")
	f.Add("a@=", "", "")
	f.Fuzz(func(t *testing.T, query, version, kind string) {
		q, err := ParseQuery(query)
		if err != nil {
			return
		}
		_, _ = q.Match(Package{Name: q.name, Version: version, Kind: kind})
	})
}
