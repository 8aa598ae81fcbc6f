// Package sbom reads lists of what an image contains (SBOMs), as its builder attached them: SPDX or CycloneDX in JSON,
// plain, as the predicate of an in-toto statement, or in a DSSE envelope; and compares their packages with what somebody
// looks for.
package sbom

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/osv-scalibr/semantic"
	"github.com/package-url/packageurl-go"
)

// Limits of what is read.
const (
	MaxSize     = 32 << 20 // bytes of a document
	maxPackages = 200_000
	maxWrapped  = 4 // envelopes within one another
)

// ErrNotSBOM says that a document is none that is understood.
var ErrNotSBOM = errors.New("neither SPDX nor CycloneDX in JSON")

// Package is something that an image contains.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	// Source is the package from whose sources it was built, where that has another name, as Debian's openssl of libssl3.
	Source string `json:"source,omitempty"`
	Kind   string `json:"kind,omitempty" doc:"Type of its package URL, such as deb, apk, golang or npm."`
}

// MediaTypes are those under which registries hold lists.
var MediaTypes = []string{
	"application/spdx+json", "application/vnd.cyclonedx+json", "text/spdx+json", "application/vnd.in-toto+json",
	"application/vnd.dsse.envelope.v1+json", "application/vnd.dev.sigstore.bundle.v0.3+json",
}

type document struct {
	// SPDX
	SPDXVersion string        `json:"spdxVersion"`
	Packages    []spdxPackage `json:"packages"`
	// CycloneDX
	BOMFormat  string      `json:"bomFormat"`
	Components []component `json:"components"`
	// in-toto
	Predicate json.RawMessage `json:"predicate"`
	// DSSE, and sigstore's bundle around it
	PayloadType string          `json:"payloadType"`
	Payload     string          `json:"payload"`
	Envelope    json.RawMessage `json:"dsseEnvelope"`
}

type spdxPackage struct {
	Name    string `json:"name"`
	Version string `json:"versionInfo"`
	Refs    []struct {
		Type    string `json:"referenceType"`
		Locator string `json:"referenceLocator"`
	} `json:"externalRefs"`
}

type component struct {
	Name       string      `json:"name"`
	Group      string      `json:"group"`
	Version    string      `json:"version"`
	PURL       string      `json:"purl"`
	Components []component `json:"components"`
}

// Parse lists the packages of a document. It is ErrNotSBOM for another kind of document.
func Parse(data []byte) ([]Package, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", len(data), MaxSize)
	}
	for range maxWrapped {
		var d document
		if err := json.Unmarshal(data, &d); err != nil {
			return nil, fmt.Errorf("%w: %v", ErrNotSBOM, err)
		}
		switch {
		case strings.HasPrefix(d.SPDXVersion, "SPDX-"):
			return d.spdx()
		case d.BOMFormat == "CycloneDX":
			return d.cyclonedx()
		case len(d.Predicate) > 0:
			data = d.Predicate
		case len(d.Envelope) > 0:
			data = d.Envelope
		case d.PayloadType == "application/vnd.in-toto+json":
			payload, err := base64.StdEncoding.DecodeString(d.Payload)
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
	if len(d.Packages) > maxPackages {
		return nil, errTooMany
	}
	for _, p := range d.Packages {
		one := Package{Name: p.Name, Version: p.Version}
		for _, r := range p.Refs {
			if r.Type == "purl" {
				one.locate(r.Locator)
				break
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func (d *document) cyclonedx() (out []Package, err error) {
	var walk func(list []component) error
	walk = func(list []component) error {
		for _, c := range list {
			if len(out) >= maxPackages {
				return errTooMany
			}
			one := Package{Name: c.Name, Version: c.Version}
			if c.Group != "" {
				one.Name = c.Group + "/" + c.Name
			}
			one.locate(c.PURL)
			out = append(out, one)
			if err := walk(c.Components); err != nil {
				return err
			}
		}
		return nil
	}
	err = walk(d.Components)
	return out, err
}

// locate takes over what a package URL says, which is exact where names are free.
func (p *Package) locate(text string) {
	u, err := packageurl.FromString(text)
	if err != nil {
		return
	}
	p.Kind, p.Name = u.Type, u.Name
	if u.Version != "" {
		p.Version = u.Version
	}
	switch u.Type {
	case packageurl.TypeDebian, packageurl.TypeApk, packageurl.TypeRPM: // the name space is the distribution's
		p.Source, _, _ = strings.Cut(u.Qualifiers.Map()["upstream"], "@")
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
	if !slices.ContainsFunc([]string{p.Name, p.Source, last}, func(n string) bool { return strings.EqualFold(n, q.name) }) {
		return false, nil
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
