package spec

import (
	"fmt"
	"slices"
	"strings"

	"skerry.dev/skerry"
)

// imageOS is the operating system of the images that a runtime runs, in the words of image indexes.
func imageOS(runtime string) string {
	switch runtime {
	case RuntimeWasm:
		return "wasip1"
	case RuntimeUnikernel:
		return "none"
	}
	return "linux"
}

// made tells whether a service's images are built for a runtime on some machine; where nothing is known of them, those
// that hold programs are.
func (s *ServiceSpec) made(k *RuntimeKind) bool {
	if len(s.Platforms) == 0 {
		return k.Chosen
	}
	own := imageOS(k.Name)
	return (k.Chosen || own != "linux") && slices.ContainsFunc(s.Platforms, func(p string) bool { return strings.HasPrefix(p, own+"/") })
}

// builtOn tells whether its images are built for a runtime on an architecture, as far as is known.
func (s *ServiceSpec) builtOn(runtime, arch string) bool {
	own := imageOS(runtime) + "/"
	return len(s.Platforms) == 0 || arch == "" || slices.Contains(s.Platforms, own+arch) || slices.Contains(s.Platforms, own+"wasm")
}

// whyNot tells why an instance does not run in the runtime of a row by the choice of auto; empty where it may.
func (s *ServiceSpec) whyNot(row int) string {
	if why := unsuited(s, &runtimeKinds[row]); why != "" {
		return why
	}
	if l := s.lackOf(row); l != nil {
		return l.text(row)
	}
	return ""
}

// unsuited tells why a runtime is not what a service is made for or asks for, whatever the runtime can do; empty where it is.
func unsuited(s *ServiceSpec, k *RuntimeKind) string {
	switch {
	case s.classed() && !k.forClasses():
		return "the service asks for a class of " + RuntimeContainerd
	case !s.classed() && k.forClasses() && k.Isolation == IsolationShared: // nothing is gained by it; the others keep a service apart
		return "name it by runtimeClass to have it"
	case !s.classed() && k.forClasses() && (s.Isolation == "" || s.Isolation == IsolationShared):
		return "name it by runtimeClass, or ask for isolation, to have it"
	case !s.made(k) && len(s.Platforms) > 0 && (k.Chosen || imageOS(k.Name) != "linux"):
		return "the image is built for " + strings.Join(s.Platforms, ", ")
	case !s.made(k):
		return "name it to have it"
	case !k.Suits(s):
		return fmt.Sprintf("keeps services apart as %s, and %s is asked for", k.Isolation, s.Isolation)
	}
	return ""
}

// Architectures lists those of workers that can run a service in one of its runtimes: what its manifest allows and its
// images are built for; empty: any.
func (s *ServiceSpec) Architectures() []string {
	built := s.builtFor()
	if len(s.Placement.Arch) == 0 || len(built) == 0 {
		return append(built, s.Placement.Arch...)
	}
	return slices.DeleteFunc(built, func(a string) bool { return !slices.Contains(s.Placement.Arch, a) })
}

// builtFor lists the architectures for which its images are built, in one of its runtimes; empty: any, or not known.
func (s *ServiceSpec) builtFor() (out []string) {
	if len(s.Platforms) == 0 {
		return nil
	}
	for _, name := range s.Runtimes() {
		own := imageOS(name)
		for _, p := range s.Platforms {
			os, arch, _ := strings.Cut(p, "/")
			switch {
			case os != own || slices.Contains(out, arch):
			case arch == "wasm":
				return nil
			default:
				out = append(out, arch)
			}
		}
	}
	return out
}

// Narrow takes from the platforms of a service those that one of its images is not built for, and refuses it when no
// worker is left that could run it. Offers are those of the image, as OS/ARCH; none: not known.
func (s *ServiceSpec) Narrow(image string, offers []string) error {
	if len(offers) == 0 {
		return nil
	}
	others := ""
	left := slices.Clone(offers)
	if len(s.Platforms) > 0 {
		others = ", and its other images for " + strings.Join(s.Platforms, ", ")
		left = slices.DeleteFunc(left, func(p string) bool { return !slices.Contains(s.Platforms, p) })
	}
	built := strings.Join(offers, ", ")
	if len(left) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "no worker can run service %s: image %s is built for %s%s", s.Name, image, built,
			others).WithHint("build all its images for one platform")
	}
	s.Platforms = left
	if s.named() {
		own := imageOS(s.Runtime)
		if !slices.ContainsFunc(left, func(p string) bool { return strings.HasPrefix(p, own+"/") }) {
			return skerry.Errorf(skerry.CodeInvalid, "image %s is built for %s; runtime %s of service %s needs %s", image, built, s.Runtime,
				s.Name, own+"/ARCH").
				WithHint("leave runtime out, for auto takes what is made for the image")
		}
	} else if len(s.Runtimes()) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "no runtime can run service %s, whose image %s is built for %s: %s", s.Name, image, built,
			strings.Join(s.ruledOut(), "; ")).
			WithHint("`skerry explain --schema` lists the fields of a service")
	}
	if len(s.Placement.Arch) > 0 && len(s.builtFor()) > 0 && len(s.Architectures()) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "service %s is to run on %s, and image %s is built for %s", s.Name,
			strings.Join(s.Placement.Arch, ", "), image, built).
			WithHint("build the image for one of these architectures, or change placement.arch")
	}
	return nil
}

// ruledOut tells of the runtimes that would run a service's images, but for something else, why they do not.
func (s *ServiceSpec) ruledOut() (out []string) {
	for i := range runtimeKinds {
		if k := &runtimeKinds[i]; s.made(k) {
			out = append(out, k.Name+" "+s.whyNot(i))
		}
	}
	return out
}
