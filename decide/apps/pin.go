package apps

import (
	"maps"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// An image reference such as web:1 may mean other content tomorrow. What it meant when a version was applied is a part of that version
// (ServiceSpec.Pinned, and so Revision): all its instances run the same bytes wherever and whenever they start, and new content under the
// same tag is a new version, which is rolled out, watched and taken back as any other.

// pin fixes the images of a manifest to digests. What could not be looked up now stays what it was. It gives warnings for people.
func pin(m *spec.Application, digests map[string]string, old *App) (all map[string]string, warnings []string) {
	all = maps.Clone(digests)
	for i := range m.Spec.Services {
		for _, ref := range m.Spec.Services[i].Images() {
			was := old.digestOf(m.Spec.Services[i].Name, ref)
			if all[ref] != "" || was == "" {
				continue
			}
			if all == nil {
				all = map[string]string{}
			}
			all[ref] = was
			warnings = append(warnings, "image "+ref+" could not be looked up; it stays "+shortDigest(was))
		}
	}
	for i := range m.Spec.Services {
		s := &m.Spec.Services[i]
		s.Pinned = pinsOf(s, all)
		if old == nil {
			continue
		}
		same := func(was *spec.ServiceSpec, digests map[string]string) bool {
			bare := *s
			bare.Pinned = nil
			return was != nil && was.Pinned == nil && bare.Revision() == was.Revision() && maps.Equal(digestsOf(s, all), digestsOf(was, digests))
		}
		// What was applied before digests were a part of revisions keeps its revision, or it would be replaced by its like.
		f := old.Refused[s.Name]
		if same(old.Manifest.Spec.Service(s.Name), old.Digests) || f != nil && same(&f.Spec, f.Digests) {
			s.Pinned = nil
		}
	}
	return all, warnings
}

// pinsOf is digestsOf for ServiceSpec.Pinned: nil if there are none.
func pinsOf(s *spec.ServiceSpec, all map[string]string) map[string]string {
	if out := digestsOf(s, all); len(out) > 0 {
		return out
	}
	return nil
}

// digestOf is what an image of a service means in an application as it is, or "".
func (a *App) digestOf(service, ref string) string {
	if a == nil {
		return ""
	}
	s := a.Manifest.Spec.Service(service)
	if s == nil || !slices.Contains(s.Images(), ref) {
		return ""
	}
	if d := s.Pinned[ref]; d != "" {
		return d
	}
	return a.Digests[ref]
}

// lookedUp tells which images of an application mean something else than before.
func lookedUp(old, next *App) (notes []string) {
	if old == nil {
		return nil
	}
	for i := range next.Manifest.Spec.Services {
		s := &next.Manifest.Spec.Services[i]
		for _, ref := range s.Images() {
			was, is := old.digestOf(s.Name, ref), next.digestOf(s.Name, ref)
			text := "image " + ref + " now is " + shortDigest(is) + ", was " + shortDigest(was) + ": updating"
			if was != "" && is != "" && was != is && !slices.Contains(notes, text) {
				notes = append(notes, text)
			}
		}
	}
	return notes
}

// shortDigest gives a pinned reference's digest by its first digits.
func shortDigest(pinned string) string {
	_, digest, ok := strings.Cut(pinned, "@")
	if !ok {
		digest = pinned
	}
	return digest[:min(len(digest), len("sha256:")+12)]
}

// repin makes what the images of a service, or of all, mean now a part of an application.
func (e *editor) repin(now time.Time, a *App, m Restart, fx *wire.Effects) (notes []string, err error) {
	old, next := *a, *a
	next.Manifest, next.Digests, next.UpdatedAt = cloneManifest(a.Manifest), maps.Clone(a.Digests), now
	for i := range next.Manifest.Spec.Services {
		s := &next.Manifest.Spec.Services[i]
		if m.Service.Service != "" && m.Service.Service != s.Name {
			continue
		}
		is := map[string]string{}
		for _, ref := range s.Images() {
			if is[ref] = m.Digests[ref]; is[ref] == "" {
				is[ref] = a.digestOf(s.Name, ref)
				notes = append(notes, "image "+ref+" could not be looked up; it stays "+shortDigest(is[ref]))
			}
		}
		if !slices.ContainsFunc(s.Images(), func(ref string) bool { return is[ref] != a.digestOf(s.Name, ref) }) {
			continue
		}
		s.Pinned = pinsOf(s, is)
		if next.Digests == nil {
			next.Digests = map[string]string{}
		}
		maps.Copy(next.Digests, s.Pinned)
		next.Refused = without(next.Refused, s.Name)
	}
	changed := lookedUp(&old, &next)
	if len(changed) == 0 {
		return append(notes, "its images mean what they meant"), nil
	}
	if err := checkSize(&next); err != nil {
		return nil, err
	}
	if err := e.replace(now, a, &next, fx); err != nil {
		return nil, err
	}
	e.history.keep(&old, a, fx)
	return append(notes, changed...), nil
}
