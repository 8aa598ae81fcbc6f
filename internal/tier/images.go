package tier

import (
	"context"

	"skerry.dev/skerry"
)

// Resolver gives digests for image references. Known is false when no registry that may know it can be reached.
type Resolver interface {
	Resolve(ctx context.Context, ref string) (digest string, known bool, err error)
}

// ResolveImages resolves the images of a valid application, so that its generation means the same bytes for ever. An
// image that certainly does not exist is an error; one that cannot be asked for now is left to the site.
func ResolveImages(ctx context.Context, r Resolver, app *skerry.Application) (map[string]string, error) {
	if err := app.Validate(); err != nil || r == nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range app.Spec.Services {
		for _, ref := range app.Spec.Services[i].Images() {
			if _, done := out[ref]; done {
				continue
			}
			d, known, err := r.Resolve(ctx, ref)
			if err != nil {
				return nil, err
			}
			if known {
				out[ref] = d
			}
		}
	}
	return out, nil
}
