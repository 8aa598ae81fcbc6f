// Package imageref reads names of images: which registry, repository, tag and digest one means. It opens nothing and asks nobody.
//
//	[REGISTRY/]REPOSITORY[:TAG][@sha256:DIGEST], also with sha512
//	 docker.io             latest                  where nothing is written; a tier looks in the built-in registry first
package imageref

import (
	_ "crypto/sha512" // for digests by that algorithm
	"fmt"
	"strings"

	"github.com/opencontainers/go-digest"
)

// DefaultRegistry is what a name without a registry means, as everywhere.
const DefaultRegistry = "docker.io"

// Ref names an image in a registry. Tag is "latest" when neither tag nor digest was written; with a digest, the tag is
// only a remark.
type Ref struct {
	Registry   string // host, or host:port
	Repository string
	Tag        string
	Digest     digest.Digest // or empty
}

// Parse reads [REGISTRY/]REPOSITORY[:TAG][@DIGEST]. A first part with a dot or a colon, or localhost, is a registry;
// else it is docker.io, where a single-part repository is in library/.
func Parse(s string) (Ref, error) {
	bad := func(why string) (Ref, error) {
		return Ref{}, fmt.Errorf("image name %.300q is not valid: %s; write it as registry.example/team/app:1.0 or with @sha256:DIGEST", s, why)
	}
	var r Ref
	if len(s) > 1024 {
		return bad("it is too long")
	}
	rest, dg, hasDigest := strings.Cut(s, "@")
	if hasDigest {
		d, err := ParseDigest(dg)
		if err != nil {
			return bad(err.Error())
		}
		r.Digest = d
	}
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.Contains(rest[i:], "/") {
		rest, r.Tag = rest[:i], rest[i+1:]
		if !ValidTag(r.Tag) {
			return bad("a tag has letters, digits, dots, dashes and underscores, at most 128, and begins with none of . and -")
		}
	} else if !hasDigest {
		r.Tag = "latest"
	}
	first, more, ok := strings.Cut(rest, "/")
	if ok && (strings.ContainsAny(first, ".:") || first == "localhost") {
		r.Registry, rest = first, more
		if !ValidHost(first) {
			return bad("its registry is not a host name")
		}
	} else {
		r.Registry = DefaultRegistry
	}
	if r.Registry == "index.docker.io" || r.Registry == "registry-1.docker.io" {
		r.Registry = DefaultRegistry
	}
	if r.Registry == DefaultRegistry && !strings.Contains(rest, "/") {
		rest = "library/" + rest
	}
	if !ValidRepository(rest) {
		return bad("a repository has parts of lower-case letters and digits, joined by single dots, underscores or dashes")
	}
	r.Repository = rest
	return r, nil
}

// Algorithms are those that a digest may be made by, the usual one first.
func Algorithms() []digest.Algorithm { return []digest.Algorithm{digest.SHA256, digest.SHA512} }

// ParseDigest reads ALGORITHM:HEX.
func ParseDigest(s string) (digest.Digest, error) {
	for _, a := range Algorithms() {
		if hex, ok := strings.CutPrefix(s, a.String()+":"); ok && len(hex) == 2*a.Size() && strings.Trim(hex, "0123456789abcdef") == "" {
			return digest.Digest(s), nil
		}
	}
	return "", fmt.Errorf("digest %.100q is not sha256: and 64 hex digits, or sha512: and 128", s)
}

// String is the full form, with registry.
func (r Ref) String() string {
	s := r.Name()
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	if r.Digest != "" {
		s += "@" + r.Digest.String()
	}
	return s
}

// Name is registry and repository.
func (r Ref) Name() string { return r.Registry + "/" + r.Repository }

// Familiar is the short form that people write.
func (r Ref) Familiar() string {
	return strings.TrimPrefix(strings.TrimPrefix(r.String(), DefaultRegistry+"/"), "library/")
}

// Identifier is what a registry is asked for.
func (r Ref) Identifier() string {
	if r.Digest != "" {
		return r.Digest.String()
	}
	return r.Tag
}

// Pinned is the reference with a digest alone.
func (r Ref) Pinned(d digest.Digest) Ref {
	return Ref{Registry: r.Registry, Repository: r.Repository, Digest: d}
}

func ValidTag(s string) bool {
	if s == "" || len(s) > 128 || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if !alnum(s[i], true) && s[i] != '_' && s[i] != '.' && s[i] != '-' {
			return false
		}
	}
	return true
}

func ValidHost(s string) bool {
	host, port, hasPort := s, "", false
	if strings.HasPrefix(s, "[") { // IPv6
		end := strings.IndexByte(s, ']')
		if end < 0 || strings.Trim(s[1:end], "0123456789abcdefABCDEF:.") != "" || end == 1 {
			return false
		}
		if rest := s[end+1:]; rest != "" {
			if rest[0] != ':' {
				return false
			}
			port, hasPort = rest[1:], true
		}
		return !hasPort || ValidPort(port)
	}
	host, port, hasPort = strings.Cut(s, ":")
	if hasPort && !ValidPort(port) || host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			if !alnum(label[i], true) && label[i] != '-' {
				return false
			}
		}
	}
	return true
}

func ValidPort(s string) bool {
	return len(s) > 0 && len(s) <= 5 && strings.Trim(s, "0123456789") == ""
}

func ValidRepository(s string) bool {
	if s == "" || len(s) > 255 {
		return false
	}
	for part := range strings.SplitSeq(s, "/") {
		for part != "" && alnum(part[0], false) {
			part = part[1:]
			if part == "" {
				goto next
			}
			switch { // a separator, and then it must go on
			case part[0] == '.':
				part = part[1:]
			case strings.HasPrefix(part, "__"):
				part = part[2:]
			case part[0] == '_':
				part = part[1:]
			case part[0] == '-':
				part = strings.TrimLeft(part, "-")
			}
		}
		return false
	next:
	}
	return true
}

func alnum(c byte, upper bool) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || upper && c >= 'A' && c <= 'Z'
}
