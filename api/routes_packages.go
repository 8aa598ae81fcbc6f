package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/sbom"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// ContentsLister is what a Backend's Registry may be able to do beside.
type ContentsLister interface {
	// Contents gives each package that an image contains, by the lists that are attached to it. Image is REGISTRY/REPOSITORY@DIGEST.
	// The registries of the image are asked if fetch is set. An image without a list, or without one for each of its platforms, gives
	// an error.
	Contents(ctx context.Context, image string, fetch bool, each func(sbom.Package)) error
}

func addPackages(handler *Handler) {
	type findIn struct {
		Package   string `query:"package" required:"true" maxLength:"512" doc:"NAME, NAME@VERSION or NAME@BOUND[,BOUND...], such as openssl@<3.0.15."`
		Namespace string `query:"namespace" maxLength:"63"`
		App       string `query:"app" maxLength:"63"`
		Fetch     bool   `query:"fetch" doc:"Fetch SBOMs that are not stored here from the images' registries."`
	}
	add(handler, operation{ID: "find-packages", Method: http.MethodGet, Path: "/v1/packages", Scope: auth.ScopeAppsRead, Object: objEach,
		Tag:     "instances",
		Summary: "Find the instances whose images contain a package, according to the SBOMs attached to the images."},
		func(ctx context.Context, who *auth.Principal, in *findIn) (*answer[view.PackageReport], error) {
			q, err := sbom.ParseQuery(in.Package)
			if err != nil {
				return nil, skerry.Errorf(skerry.CodeInvalid, "package: %w", err)
			}
			lister, ok := handler.opt.Backend.Registry().(ContentsLister)
			if !ok {
				return nil, skerry.Errorf(skerry.CodeUnsupported, "this server has no registry")
			}
			list, err := handler.opt.Backend.Instances(ctx)
			if err != nil {
				return nil, err
			}
			see := handler.seer(ctx, who, auth.ScopeAppsRead)
			f := packageFinder{h: handler, query: q, fetch: in.Fetch, lister: lister,
				apps: map[skerry.AppKey]*view.AppView{}, images: map[string]*contents{}}
			for _, i := range list {
				k := i.Service.App
				if ctx.Err() == nil && (in.Namespace == "" || in.Namespace == k.Namespace) && (in.App == "" || in.App == k.Name) && see.instance(&i) {
					f.look(ctx, &i)
				}
			}
			return &answer[view.PackageReport]{f.report()}, ctx.Err()
		})
}

// packageFinder looks through the images of instances, each once.
type packageFinder struct {
	h      *Handler
	query  sbom.Query
	fetch  bool
	lister ContentsLister
	apps   map[skerry.AppKey]*view.AppView // nil: it is not known
	images map[string]*contents
	found  []view.PackageUse
}

// contents are the packages in an image that are looked for, or why that is not known.
type contents struct {
	found     []sbom.Package
	reason    string
	instances []skerry.InstanceID // if it is not known
}

func (f *packageFinder) look(ctx context.Context, i *wire.Instance) {
	for _, image := range f.imagesOf(ctx, i) {
		c := f.images[image]
		if c == nil {
			c = f.contents(ctx, image)
			f.images[image] = c
		}
		if c.reason != "" {
			c.instances = append(c.instances, i.ID)
		}
		for _, p := range c.found {
			f.found = append(f.found, view.PackageUse{Instance: i.ID, Service: i.Service, Cluster: string(i.Cluster),
				Image: image, Package: p.Name, Version: p.Version})
		}
	}
}

// imagesOf names the images that an instance consists of, as far as they are known by digest. The manifest knows those
// of its own version; of an instance of another one, the digest of its main image alone is known, and the others are
// named as they are written.
func (f *packageFinder) imagesOf(ctx context.Context, inst *wire.Instance) (out []string) {
	app, known := f.apps[inst.Service.App]
	if !known {
		if v, err := f.h.opt.Backend.App(ctx, inst.Service.App, 0); err == nil {
			app = &v
		}
		f.apps[inst.Service.App] = app
	}
	var service *spec.ServiceSpec
	same := false
	if app != nil && app.Manifest != nil {
		service = app.Manifest.Spec.Service(inst.Service.Service)
		same = slices.ContainsFunc(app.Services, func(v view.ServiceView) bool {
			return v.Name == inst.Service.Service && v.Revision == inst.Revision
		})
	}
	if service == nil {
		return []string{inst.Service.String()} // which is no image, and nothing to ask a registry about
	}
	main := service.Pinned[service.Image]
	_, digest, _ := strings.Cut(main, "@")
	for _, ref := range service.Images() {
		switch pinned := service.Pinned[ref]; {
		case same && pinned != "":
			out = append(out, pinned)
		case ref == service.Image && inst.Digest != "" && main != "":
			out = append(out, strings.TrimSuffix(main, digest)+inst.Digest)
		default:
			out = append(out, ref)
		}
	}
	return out
}

func (f *packageFinder) contents(ctx context.Context, image string) *contents {
	if !strings.Contains(image, "@sha") {
		return &contents{reason: "its digest is not known here"}
	}
	c := &contents{}
	err := f.lister.Contents(ctx, image, f.fetch, func(p sbom.Package) {
		ok, err := f.query.Match(p)
		switch {
		case err != nil:
			c.reason = err.Error()
		case !ok || slices.Contains(c.found, p):
		case len(c.found) == maxFound:
			c.reason = fmt.Sprintf("its lists name it in more than %d versions", maxFound)
		default:
			c.found = append(c.found, p)
		}
	})
	if err != nil {
		c.reason = err.Error()
	}
	return c
}

// maxFound bounds the packages of one image in an answer, which has them once for each instance.
const maxFound = 100

func (f *packageFinder) report() view.PackageReport {
	r := view.PackageReport{Found: f.found}
	for image, c := range f.images {
		if c.reason != "" {
			r.Unknown = append(r.Unknown, view.PackageUnknown{Image: image, Reason: c.reason, Instances: c.instances})
		}
	}
	slices.SortFunc(r.Found, func(a, b view.PackageUse) int {
		return cmp.Or(cmp.Compare(a.Service.String(), b.Service.String()), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Package, b.Package))
	})
	slices.SortFunc(r.Unknown, func(a, b view.PackageUnknown) int { return cmp.Compare(a.Image, b.Image) })
	if r.Found == nil {
		r.Found = []view.PackageUse{}
	}
	return r
}
