package tier

import (
	"context"
	"fmt"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// lookTime bounds how long the names of all registries are looked up.
const lookTime = 5 * time.Second

// UsedImage is an image of a service, by the name in its manifest.
type UsedImage struct {
	Service  skerry.ServiceKey
	Org, Ref string
}

// Restricted lists what a role's registry would refuse today: images of registries that it does not ask, and organisations that have
// pushed more than they may.
func Restricted(ctx context.Context, r Registry, book OrgBook, used []UsedImage) (out []view.Unadmitted, err error) {
	m, ok := r.(*Images)
	if !ok {
		return nil, nil
	}
	spaces, err := book.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, n := range spaces {
		if seen[n.Org] {
			continue
		}
		seen[n.Org] = true
		share, err := m.pushShare(ctx, n.Name)
		if err != nil {
			return nil, err
		}
		if pushed := m.handler.Pushed(share.Namespaces...); share.Bytes > 0 && pushed > share.Bytes {
			out = append(out, view.Unadmitted{Org: n.Org, Reason: wire.Reason{What: "quota",
				Text: fmt.Sprintf("organisation %s has pushed %s of images here and may have %s; these stay, and it can push no more", n.Org,
					skerry.Bytes(pushed), skerry.Bytes(share.Bytes)),
				Hint: share.Hint}})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	refused := map[string]error{} // by registry
	done := map[UsedImage]bool{}
	for _, u := range used {
		ref, err := imageref.Parse(u.Ref)
		if _, anywhere := imageref.Unnamed(u.Ref, ref); err != nil || anywhere || ref.Registry == imageref.BuiltIn || done[u] {
			continue
		}
		done[u] = true
		if _, known := refused[ref.Registry]; !known {
			refused[ref.Registry] = m.direct.Guard.Refuses(ctx, ref.Registry)
		}
		why := refused[ref.Registry]
		if !m.direct.Guard.Serves(ref.Registry, u.Org) {
			why = fmt.Errorf("registry %s is not there for organisation %s", ref.Registry, u.Org)
		}
		if why == nil {
			continue
		}
		reason := wire.Reason{What: "registry", Text: fmt.Sprintf("image %s cannot be fetched anew: %v", u.Ref, why),
			Hint: "the operator lists registries by --registry, and organisations beside the credentials of --registry-config"}
		if m.parent != nil {
			reason.Text += "; this site gets it only if its root asks that registry"
		}
		out = append(out, view.Unadmitted{Service: u.Service, Org: u.Org, Reason: reason})
	}
	return out, nil
}

// ImagesOf lists the images of a service.
func ImagesOf(k skerry.ServiceKey, org string, s *spec.ServiceSpec) (out []UsedImage) {
	for _, ref := range s.Images() {
		out = append(out, UsedImage{k, org, ref})
	}
	return out
}
