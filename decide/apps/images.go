package apps

import (
	"cmp"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// ImageUses are those of images, by their pinned names, or by those with tags where nobody knows the digest.
type ImageUses map[string]*ImageUse

// ImageUse is what an image is used for.
type ImageUse struct {
	view.ImageUse
	// Versions are those of its application in which a service names the image, by the service, oldest first; 0 is not known.
	Versions map[string][]skerry.Generation
}

// Of gives the uses of an image, to add to them.
func (u ImageUses) Of(pinned string) *ImageUse {
	if u[pinned] == nil {
		u[pinned] = &ImageUse{}
	}
	return u[pinned]
}

// Run adds that a version of a service runs an image.
func (u ImageUses) Run(pinned string, k skerry.ServiceKey, g skerry.Generation) {
	use := u.Of(pinned)
	use.add(&use.UsedBy, k, g)
}

// keep adds that a version that a service could go back to runs an image.
func (u ImageUses) keep(pinned string, k skerry.ServiceKey, g skerry.Generation) {
	use := u.Of(pinned)
	use.add(&use.KeptFor, k, g)
}

func (u *ImageUse) add(list *[]string, k skerry.ServiceKey, g skerry.Generation) {
	user := k.String()
	insert(list, user)
	if u.Versions == nil {
		u.Versions = map[string][]skerry.Generation{}
	}
	versions := u.Versions[user]
	insert(&versions, g)
	u.Versions[user] = versions
}

// Add adds the uses of the same image under another name.
func (u *ImageUse) Add(other *ImageUse) {
	for _, user := range other.UsedBy {
		insert(&u.UsedBy, user)
	}
	for _, user := range other.KeptFor {
		insert(&u.KeptFor, user)
	}
	if u.Versions == nil {
		u.Versions = map[string][]skerry.Generation{}
	}
	for user, list := range other.Versions {
		versions := slices.Clone(u.Versions[user])
		for _, g := range list {
			insert(&versions, g)
		}
		u.Versions[user] = versions
	}
}

func insert[T cmp.Ordered](list *[]T, v T) {
	if i, there := slices.BinarySearch(*list, v); !there {
		*list = slices.Insert(*list, i, v)
	}
}

// ImageUses lists what images are used for: applications and instances run them, and earlier versions could be gone back to.
func (vs *views) ImageUses() ImageUses {
	uses := ImageUses{}
	run := func(app skerry.AppKey, s *spec.ServiceSpec, digests map[string]string, g skerry.Generation) {
		for image := range meant(s, digests) {
			uses.Run(image, skerry.ServiceKey{App: app, Service: s.Name}, g)
		}
	}
	keep := func(app skerry.AppKey, s *spec.ServiceSpec, digests map[string]string, g skerry.Generation) {
		for image := range meant(s, digests) {
			uses.keep(image, skerry.ServiceKey{App: app, Service: s.Name}, g)
		}
	}
	for k, a := range vs.catalog.apps {
		for i := range a.Manifest.Spec.Services {
			run(k, &a.Manifest.Spec.Services[i], a.Digests, a.Gen)
		}
		for _, f := range a.Refused {
			keep(k, &f.Spec, f.Digests, 0)
		}
	}
	for k, list := range vs.history.earlier {
		for _, p := range list {
			for i := range p.Manifest.Spec.Services {
				keep(k, &p.Manifest.Spec.Services[i], p.Digests, p.Gen)
			}
		}
	}
	for _, i := range vs.ledger.inst {
		if i.Spec == nil {
			continue
		}
		var digests map[string]string
		if a := vs.catalog.apps[i.Service.App]; a != nil {
			digests = a.Digests
		}
		run(i.Service.App, i.Spec, digests, i.Gen)
	}
	return uses
}

// meant gives what the images of a service mean, by its own word and by its application's; one whose digest nobody knows is its tag.
func meant(s *spec.ServiceSpec, digests map[string]string) map[string]bool {
	out := map[string]bool{}
	for _, ref := range s.Images() {
		for _, pinned := range []string{s.Pinned[ref], digests[ref]} {
			if pinned != "" {
				out[pinned] = true
			}
		}
		if s.Pinned[ref] == "" && digests[ref] == "" {
			out[ref] = true
		}
	}
	return out
}
