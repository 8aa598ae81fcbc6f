package tier

import (
	"context"
	"fmt"
	"slices"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/spec"
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
func ResolveImages(ctx context.Context, r Resolver, app *spec.Application) (map[string]string, error) {
	for i := range app.Spec.Services {
		app.Spec.Services[i].Platforms = nil // whatever the manifest says
	}
	if err := app.Validate(); err != nil || r == nil {
		return nil, err
	}
	return lookUp(ctx, r, app)
}

// lookUp is ResolveImages for what was validated.
func lookUp(ctx context.Context, r Resolver, app *spec.Application) (map[string]string, error) {
	pins, out := map[string]Pinned{}, map[string]string{}
	for i := range app.Spec.Services {
		s := &app.Spec.Services[i]
		for _, ref := range s.Images() {
			pin, done := pins[ref]
			if !done {
				var err error
				if pin, err = r.Resolve(ctx, ref); err != nil {
					return nil, atImage(err, i, s, ref)
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

// atImage names the field of a manifest whose image cannot be used.
func atImage(err error, n int, service *spec.ServiceSpec, ref string) error {
	e := skerry.AsError(err)
	if e.Code != skerry.CodeInvalid || len(e.Problems) > 0 {
		return err
	}
	path := fmt.Sprintf("spec.services[%d]", n)
	for i := range service.Init {
		if service.Image != ref && service.Init[i].Image == ref {
			path += fmt.Sprintf(".init[%d]", i)
			break
		}
	}
	for i := range service.Sidecars {
		if service.Image != ref && service.Sidecars[i].Image == ref {
			path += fmt.Sprintf(".sidecars[%d]", i)
			break
		}
	}
	out := *e
	out.Problems = []skerry.Problem{{Path: path + ".image", Message: "this image cannot be used"}}
	return &out
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
