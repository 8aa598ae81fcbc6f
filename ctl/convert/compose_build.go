package convert

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"skerry.dev/skerry/spec"
)

// Build is an image that has to be built and pushed before the application can run.
type Build struct {
	Service  string            `json:"service"`
	Image    string            `json:"image"` // its name in the manifest
	Dir      string            `json:"dir"`
	File     string            `json:"file,omitempty"`   // "" for the Dockerfile or Containerfile of Dir
	Inline   string            `json:"inline,omitempty"` // the Dockerfile itself
	Target   string            `json:"target,omitempty"`
	Platform string            `json:"platform,omitempty"`
	Args     map[string]string `json:"args,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}

// builtIn is the registry that every root and cluster has. The image names it, or others would answer for an image that was not pushed.
const builtIn = "skerry.local/"

// buildNotes says what becomes of fields of build that need no counterpart.
var buildNotes = map[string]string{
	"cache_from":      "left out: the builder keeps a cache of its own",
	"cache_to":        "left out: the builder keeps a cache of its own",
	"no_cache":        "left out: the builder's cache is used",
	"no_cache_filter": "left out: the builder's cache is used",
	"pull":            "left out: the builder decides when it looks for newer images",
	"provenance":      "left out: skerry image sign signs the image",
	"sbom":            "left out",
	"shm_size":        "left out: it is the builder's",
	"ulimits":         "left out: they are the builder's",
	"isolation":       "left out: it is of Windows",
	"tags":            "left out: the image has one name; skerry image tag gives more",
}

// buildRefusals say why.
var buildRefusals = map[string]string{
	"additional_contexts": "one directory is given to the builder: copy it there, or build the image yourself and name it",
	"secrets":             "build it yourself, with what it needs, and name the image",
	"ssh":                 "build it yourself, with what it needs, and name the image",
	"network":             "build it yourself, with what it needs, and name the image",
	"extra_hosts":         "build it yourself, with what it needs, and name the image",
	"entitlements":        "build it yourself, with what it needs, and name the image",
	"privileged":          "build it yourself, with what it needs, and name the image",
}

// build takes how the image of a service is built. Where an image is named beside it, that is taken, as Compose does, which builds only
// what cannot be pulled, unless pull_policy or --build says otherwise.
func (conv *compose) build(from *fields, svc *spec.ServiceSpec) {
	policy, _ := from.m["pull_policy"].(string)
	one := from.sub("build")
	if one.m == nil {
		if conv.opt.Build || policy != "build" {
			return
		}
		from.refuse("pull_policy", "there is no build")
		from.take("pull_policy")
		return
	}
	fail := conv.Count(Refused)
	built := Build{Service: svc.Name, Target: one.text("target", ""), Args: one.pairs("args", ""), Labels: one.pairs("labels", ""),
		Dir: one.text("context", ""), File: one.text("dockerfile", ""), Inline: one.text("dockerfile_inline", "")}
	switch platforms := one.texts("platforms", ""); {
	case len(platforms) > 1:
		one.refuse("platforms", "one is built: write it alone, or build the others with skerry image build --add-platform")
	case len(platforms) == 1:
		built.Platform = platforms[0]
	default:
		built.Platform, _ = from.m["platform"].(string)
	}
	one.leave(buildNotes)
	one.nothingLike(buildRefusals)
	local := conv.buildFiles(one, &built)
	asked := conv.opt.Build || policy == "build"
	if policy == "build" {
		from.take("pull_policy")
	}
	if conv.Count(Refused) > fail {
		return // it has said why
	}
	command := built.command(conv.dir)
	if svc.Image != "" && !asked {
		one.approx("", "the image of that name is used; apply --build builds it, or do it before: %s", command(svc.Image))
		return
	}
	switch {
	case svc.Image == "":
		svc.Image = builtIn + cmp.Or(conv.opt.Namespace, spec.DefaultNamespace) + "/" + conv.App.Metadata.Name + "/" + svc.Name
	case !atRegistry(svc.Image):
		svc.Image = builtIn + svc.Image
	}
	built.Image = svc.Image
	switch other := conv.builds(svc.Image); {
	case other == nil:
		conv.Builds = append(conv.Builds, built)
	case !other.same(built):
		from.refuse("build", "service %s builds another image of the name %s, and one would take the other's place: give them different names",
			other.Service, svc.Image)
		return
	}
	if conv.opt.Builds {
		one.kept("", "image: %s, built from %s", svc.Image, local)
		return
	}
	one.approx("", "image: %s, which skerry apply builds from this file; by hand: %s", svc.Image, command(svc.Image))
}

// builds gives what is built under a name so far, or nil.
func (conv *compose) builds(image string) *Build {
	for n := range conv.Builds {
		if conv.Builds[n].Image == image {
			return &conv.Builds[n]
		}
	}
	return nil
}

// same reports whether two services are built in the same way.
func (b *Build) same(other Build) bool {
	other.Service = b.Service
	return reflect.DeepEqual(*b, other)
}

// atRegistry reports whether the name of an image says at which registry it is.
func atRegistry(image string) bool {
	first, _, several := strings.Cut(image, "/")
	return several && (strings.ContainsAny(first, ".:") || first == "localhost")
}

// buildFiles says what is built from which directory, and refuses what is not below the one of the file: it would leave this machine with
// the image.
func (conv *compose) buildFiles(from *fields, built *Build) (local string) {
	switch {
	case !filepath.IsAbs(built.Dir):
		from.refuse("context", "%s is not a directory here: clone it beside the file", built.Dir)
		return ""
	case conv.dir == "":
		from.refuse("", "%s", conv.outside(built.Dir))
		return ""
	}
	inside := func(key, path string) string {
		rest, err := filepath.Rel(conv.dir, path)
		if err != nil || !filepath.IsLocal(rest) {
			from.refuse(key, "%s is not below the directory of the file, and would leave this machine: build it yourself if it should, "+
				"and name the image", path)
		} else if _, err := os.Lstat(path); err == nil {
			if why := conv.outside(path); why != "" {
				from.refuse(key, "%s", why)
			}
		}
		return rest
	}
	refused := conv.Count(Refused)
	local = inside("context", built.Dir)
	if conv.Count(Refused) > refused {
		return local
	}
	if built.Inline != "" {
		built.File = ""
		return local
	}
	if built.File != "" && !filepath.IsAbs(built.File) {
		built.File = filepath.Join(built.Dir, built.File)
	}
	if built.File == filepath.Join(built.Dir, "Dockerfile") {
		built.File = "" // what is meant where nothing is said
	}
	if built.File != "" {
		inside("dockerfile", built.File)
		return local
	}
	for _, name := range []string{"Dockerfile", "Containerfile"} { // the builder would follow a link
		inside("context", filepath.Join(built.Dir, name))
	}
	return local
}

// command writes how the image is built by hand, from the directory of the file.
func (b *Build) command(dir string) func(image string) string {
	below := func(path string) string {
		if rest, err := filepath.Rel(dir, path); err == nil {
			return rest
		}
		return path
	}
	return func(image string) string {
		words := []string{"skerry", "image", "build", below(b.Dir)}
		switch {
		case b.Inline != "":
			words = append(words, "--file", "DOCKERFILE")
		case b.File != "":
			words = append(words, "--file", below(b.File))
		}
		if b.Target != "" {
			words = append(words, "--target", b.Target)
		}
		if b.Platform != "" {
			words = append(words, "--platform", b.Platform)
		}
		for _, name := range slices.Sorted(maps.Keys(b.Args)) {
			words = append(words, "--build-arg", fmt.Sprintf("%s=%s", name, b.Args[name]))
		}
		for i, word := range words {
			words[i] = shellWord(word)
		}
		return strings.Join(append(words, "-t", strings.TrimPrefix(image, builtIn), "--push"), " ")
	}
}

// shellWord quotes a word where a shell would take it for more than itself.
func shellWord(word string) string {
	plain := func(r rune) bool {
		return r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("_@%+=:,./-", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
