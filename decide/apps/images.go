package apps

import (
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
)

// ImageUses are those of images, by their pinned names, or by those with tags where nobody knows the digest.
type ImageUses map[string]*view.ImageUse

// Of gives the uses of an image, to add to them.
func (u ImageUses) Of(pinned string) *view.ImageUse {
	if u[pinned] == nil {
		u[pinned] = &view.ImageUse{}
	}
	return u[pinned]
}

// Run adds that a service runs an image.
func (u ImageUses) Run(pinned string, k skerry.ServiceKey) { addUser(&u.Of(pinned).UsedBy, k) }

func addUser(list *[]string, k skerry.ServiceKey) {
	if i, there := slices.BinarySearch(*list, k.String()); !there {
		*list = slices.Insert(*list, i, k.String())
	}
}

// ImageUses lists what images are used for: applications and instances run them, and earlier versions could be gone back to.
func (vs *views) ImageUses() ImageUses {
	uses := ImageUses{}
	run := func(app skerry.AppKey, s *spec.ServiceSpec, digests map[string]string) {
		for image := range meant(s, digests) {
			uses.Run(image, skerry.ServiceKey{App: app, Service: s.Name})
		}
	}
	keep := func(app skerry.AppKey, s *spec.ServiceSpec, digests map[string]string) {
		for image := range meant(s, digests) {
			addUser(&uses.Of(image).KeptFor, skerry.ServiceKey{App: app, Service: s.Name})
		}
	}
	for k, a := range vs.catalog.apps {
		for i := range a.Manifest.Spec.Services {
			run(k, &a.Manifest.Spec.Services[i], a.Digests)
		}
		for _, f := range a.Refused {
			keep(k, &f.Spec, f.Digests)
		}
	}
	for k, list := range vs.history.earlier {
		for _, p := range list {
			for i := range p.Manifest.Spec.Services {
				keep(k, &p.Manifest.Spec.Services[i], p.Digests)
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
		run(i.Service.App, i.Spec, digests)
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
