package tier

import (
	"context"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
)

// Pinned is what an image reference means now.
type Pinned struct {
	// Digest is REGISTRY/REPOSITORY@DIGEST; empty when no registry that may know it can be reached.
	Digest    string
	Platforms []artifact.Platform // that the image is built for; empty: not known
}

// Resolver pins image references. An image that certainly does not exist is an error.
type Resolver interface {
	Resolve(ctx context.Context, ref string) (Pinned, error)
}

// ResolveImages resolves the images of a valid application, so that its generation means the same bytes for ever, and notes in it for
// which platforms they are built. One that cannot be asked for now is left to the site.
func ResolveImages(ctx context.Context, r Resolver, app *skerry.Application) (map[string]string, error) {
	for i := range app.Spec.Services {
		app.Spec.Services[i].Platforms = nil // whatever the manifest says
	}
	if err := app.Validate(); err != nil || r == nil {
		return nil, err
	}
	pins, out := map[string]Pinned{}, map[string]string{}
	for i := range app.Spec.Services {
		s := &app.Spec.Services[i]
		for _, ref := range s.Images() {
			pin, done := pins[ref]
			if !done {
				var err error
				if pin, err = r.Resolve(ctx, ref); err != nil {
					return nil, err
				}
				pins[ref] = pin
				if pin.Digest != "" {
					out[ref] = pin.Digest
				}
			}
			if err := s.Narrow(ref, offers(pin.Platforms)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// offers names platforms as a service does; none: one of them does not say what it is.
func offers(list []artifact.Platform) (out []string) {
	for _, p := range list {
		if p.Arch == "" || p.OS == "" {
			return nil
		}
		if name := p.OS + "/" + p.Arch; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
