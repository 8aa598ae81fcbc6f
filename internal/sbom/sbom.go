// Package sbom reads lists of what an image contains (SBOMs), as its builder attached them: SPDX or CycloneDX in JSON,
// plain, as the predicate of an in-toto statement, or in a DSSE envelope; and compares their packages with what somebody
// looks for.
package sbom

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/osv-scalibr/semantic"
	"github.com/package-url/packageurl-go"
)

// Limits of what is read.
const (
	MaxSize     = 32 << 20 // bytes of a document
	maxPackages = 200_000
	maxWrapped  = 4 // envelopes within one another
	maxNested   = 8 // components within one another
	maxVersion  = 256
)

// ErrNotSBOM says that a document is none that is understood.
var ErrNotSBOM = errors.New("neither SPDX nor CycloneDX in JSON")

// Package is something that an image contains.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Source is the package from whose sources it was built, where that has another name, as Debian's openssl of libssl3.
	Source string `json:"source,omitempty"`
	// SourceVersion is its version, where that is another one.
	SourceVersion string `json:"sourceVersion,omitempty"`
	Kind          string `json:"kind,omitempty" doc:"Type of its package URL, such as deb, apk, golang or npm."`
}

// MediaTypes are those under which registries hold lists.
var MediaTypes = []string{
	"application/spdx+json", "application/vnd.cyclonedx+json", "text/spdx+json", "application/vnd.in-toto+json",
	"application/vnd.dsse.envelope.v1+json", "application/vnd.dev.sigstore.bundle.v0.3+json",
}

// Statement reports whether a document of a media type may be about something else, such as how an image was built.
func Statement(mediaType string) bool {
	return strings.Contains(mediaType, "in-toto") || strings.Contains(mediaType, "dsse") || strings.Contains(mediaType, "sigstore")
}

// document is read one package at a time, since a short text may stand for a long list.
type document struct {
	// SPDX
	SPDXVersion string          `json:"spdxVersion"`
	Packages    json.RawMessage `json:"packages"`
	// CycloneDX
	BOMFormat  string          `json:"bomFormat"`
	Components json.RawMessage `json:"components"`
	// in-toto
	Predicate json.RawMessage `json:"predicate"`
	// DSSE, and sigstore's bundle around it
	PayloadType string          `json:"payloadType"`
	Payload     string          `json:"payload"`
	Envelope    json.RawMessage `json:"dsseEnvelope"`
}

type spdxPackage struct {
	Name    string          `json:"name"`
	Version string          `json:"versionInfo"`
	Refs    json.RawMessage `json:"externalRefs"`
}

type spdxRef struct {
	Type    string `json:"referenceType"`
	Locator string `json:"referenceLocator"`
}

type component struct {
	Name       string          `json:"name"`
	Group      string          `json:"group"`
	Version    string          `json:"version"`
	PURL       string          `json:"purl"`
	Components json.RawMessage `json:"components"`
}

// each reads a list of JSON, of which no more than one item is in memory.
func each[T any](list json.RawMessage, do func(*T) error) error {
	if len(list) == 0 || string(list) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(list))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		return errors.New("what is to be a list is none")
	}
	for d.More() {
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		if err := do(&v); err != nil {
			return err
		}
	}
	return nil
}

// Parse lists the packages of a document. It is ErrNotSBOM for another kind of document.
func Parse(data []byte) ([]Package, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(data), MaxSize)
	}
	for range maxWrapped {
		var doc document
		if err := json.Unmarshal(data, &doc); err != nil {
			return nil, fmt.Errorf("%w: %v", ErrNotSBOM, err)
		}
		switch {
		case strings.HasPrefix(doc.SPDXVersion, "SPDX-"):
			return doc.spdx()
		case doc.BOMFormat == "CycloneDX":
			return doc.cyclonedx()
		case len(doc.Predicate) > 0:
			data = doc.Predicate
		case len(doc.Envelope) > 0:
			data = doc.Envelope
		case doc.PayloadType == "application/vnd.in-toto+json":
			payload, err := base64.StdEncoding.DecodeString(doc.Payload)
			if err != nil {
				return nil, fmt.Errorf("payload: %w", err)
			}
			data = payload
		default:
			return nil, ErrNotSBOM
		}
	}
	return nil, ErrNotSBOM
}

var errTooMany = fmt.Errorf("it names more than %d packages", maxPackages)

func (d *document) spdx() (out []Package, err error) {
	err = each(d.Packages, func(p *spdxPackage) error {
		if len(out) >= maxPackages {
			return errTooMany
		}
		one, located := Package{Name: p.Name, Version: p.Version}, false
		err := each(p.Refs, func(r *spdxRef) error {
			if r.Type == "purl" && !located {
				one.locate(r.Locator)
				located = true
			}
			return nil
		})
		out = append(out, one)
		return err
	})
	return out, err
}

func (d *document) cyclonedx() (out []Package, err error) {
	var walk func(list json.RawMessage, depth int) error
	walk = func(list json.RawMessage, depth int) error {
		return each(list, func(c *component) error {
			if len(out) >= maxPackages {
				return errTooMany
			}
			if depth > maxNested {
				return fmt.Errorf("its components are nested more than %d deep", maxNested)
			}
			one := Package{Name: c.Name, Version: c.Version}
			if c.Group != "" {
				one.Name = c.Group + "/" + c.Name
			}
			one.locate(c.PURL)
			out = append(out, one)
			return walk(c.Components, depth+1)
		})
	}
	err = walk(d.Components, 0)
	return out, err
}

// locate takes over what a package URL says, which is exact where names are free.
func (p *Package) locate(text string) {
	u, err := packageurl.FromString(text)
	if err != nil {
		return
	}
	p.Kind, p.Name = u.Type, u.Name
	more := u.Qualifiers.Map()
	if u.Version != "" {
		p.Version = u.Version
	}
	if e := more["epoch"]; e != "" && u.Type == packageurl.TypeRPM && !strings.Contains(p.Version, ":") {
		p.Version = e + ":" + p.Version
	}
	switch u.Type {
	case packageurl.TypeDebian, packageurl.TypeApk, packageurl.TypeRPM: // the name space is the distribution's
		p.Source, p.SourceVersion, _ = strings.Cut(more["upstream"], "@")
		if file, ok := strings.CutSuffix(p.Source, ".src.rpm"); ok { // NAME-VERSION-RELEASE
			for range 2 {
				file = file[:max(0, strings.LastIndexByte(file, '-'))]
			}
			p.Source = file
		}
	default:
		if u.Namespace != "" {
			p.Name = u.Namespace + "/" + u.Name
		}
	}
}

// ecosystems are the rules by which versions are compared, by the type of package URL. Others are compared by semantic versions' rules.
var ecosystems = map[string]string{
	packageurl.TypeDebian: "Debian", packageurl.TypeApk: "Alpine", packageurl.TypeRPM: "Red Hat",
	packageurl.TypeGolang: "Go", packageurl.TypeNPM: "npm", packageurl.TypePyPi: "PyPI", packageurl.TypeMaven: "Maven",
	packageurl.TypeGem: "RubyGems", packageurl.TypeNuget: "NuGet", packageurl.TypeComposer: "Packagist",
}

// Query is what somebody looks for.
type Query struct {
	name   string
	bounds []bound
}

type bound struct{ op, version string }

var operators = []string{"<=", ">=", "=", "<", ">"} // the longer ones first

// ParseQuery reads NAME, NAME@VERSION, or NAME@BOUND[,BOUND...], where a bound is one of < <= = >= > and a version. A
// package of npm whose name begins with an @ keeps it.
func ParseQuery(s string) (Query, error) {
	at := strings.LastIndexByte(s, '@')
	if at <= 0 {
		at = len(s)
	}
	q := Query{name: s[:at]}
	if strings.Trim(q.name, "@") == "" || len(s) > 512 || strings.ContainsAny(q.name, "<>=, ") {
		return Query{}, fmt.Errorf("%.100q names no package: write openssl, openssl@3.0.14 or 'openssl@>=3.0,<3.0.15'", s)
	}
	if at == len(s) {
		return q, nil
	}
	for text := range strings.SplitSeq(s[at+1:], ",") {
		b := bound{op: "=", version: text}
		for _, op := range operators {
			if v, ok := strings.CutPrefix(text, op); ok {
				b = bound{op, v}
				break
			}
		}
		if b.version = strings.TrimSpace(b.version); b.version == "" || strings.ContainsAny(b.version, "<>= ") {
			return Query{}, fmt.Errorf("%.100q has no version in %.100q: write openssl@3.0.14 or 'openssl@>=3.0,<3.0.15'", s, text)
		}
		q.bounds = append(q.bounds, b)
	}
	return q, nil
}

// Match reports whether a package is one that is looked for, by its own name or that of its sources. A version that
// cannot be compared is an error, and not a no.
func (q Query) Match(p Package) (bool, error) {
	last := p.Name[strings.LastIndexByte(p.Name, '/')+1:]
	own := strings.EqualFold(p.Name, q.name) || strings.EqualFold(last, q.name)
	if !own && !strings.EqualFold(p.Source, q.name) {
		return false, nil
	}
	if !own && p.SourceVersion != "" { // as lvm2 2.03.16-2 has dmsetup 2:1.02.185-2
		p.Version = p.SourceVersion
	}
	for _, b := range q.bounds {
		n, err := compare(p, b.version)
		if err != nil {
			return false, err
		}
		if !holds(b.op, n) {
			return false, nil
		}
	}
	return true, nil
}

func holds(op string, n int) bool {
	switch op {
	case "<":
		return n < 0
	case "<=":
		return n <= 0
	case ">":
		return n > 0
	case ">=":
		return n >= 0
	}
	return n == 0
}

// compare is negative when the package is older than a version.
func compare(p Package, version string) (n int, err error) {
	if p.Version == "" {
		return 0, fmt.Errorf("its list names no version of %s", p.Name)
	}
	if len(p.Version) > maxVersion {
		return 0, fmt.Errorf("its list names a version of %s that is longer than %d bytes", p.Name, maxVersion)
	}
	ecosystem, known := ecosystems[p.Kind]
	if !known {
		ecosystem = "crates.io" // semantic versions
	}
	v, err := semantic.Parse(p.Version, ecosystem)
	if err == nil {
		n, err = v.CompareStr(version)
	}
	if err != nil {
		return 0, fmt.Errorf("%s %s cannot be compared with %s: %w", p.Name, p.Version, version, err)
	}
	return n, nil
}
