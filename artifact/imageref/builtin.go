package imageref

import (
	"cmp"
	"slices"
	"strings"
)

// BuiltIn is the name of the registry that every federation has. An image without a registry is looked for there
// first, then at docker.io.
const BuiltIn = "skerry.local"

// Pins reports whether a pinned reference can be what an image reference means: the same repository at the same registry, or where the
// reference names no registry, at the built-in one. A digest pins nothing else.
func Pins(ref, pinned string) bool {
	r, err := Parse(ref)
	p, perr := Parse(pinned)
	if err != nil || perr != nil || p.Digest == "" || r.Digest != "" && r.Digest != p.Digest {
		return false
	}
	local, anywhere := Unnamed(ref, r)
	return p.Name() == r.Name() || anywhere && p.Name() == local.Name()
}

// Unnamed gives what a reference means at the built-in registry, where it names no registry.
func Unnamed(s string, r Ref) (Ref, bool) {
	if strings.HasPrefix(s, r.Registry+"/") {
		return r, false
	}
	r.Registry, r.Repository = BuiltIn, strings.TrimPrefix(r.Repository, "library/")
	return r, true
}

// ServesOrg reports whether a site has the registry of an image for an organisation, and gives that registry. orgs are
// those that registries are for, where they are not for all.
func ServesOrg(orgs map[string][]string, ref, pinned, org string) (registry string, ok bool) {
	r, err := Parse(cmp.Or(pinned, ref))
	if err != nil || org == "" {
		return "", true
	}
	if _, anywhere := Unnamed(ref, r); anywhere && pinned == "" {
		return "", true // who has it decides when it is resolved
	}
	list, bounded := orgs[r.Registry]
	return r.Registry, !bounded || slices.Contains(list, org)
}
