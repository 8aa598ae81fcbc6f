package apps

import (
	"slices"
	"strings"

	"skerry.dev/skerry/view"
)

// AppPage asks for a part of the applications of a tier, in the order of their keys.
type AppPage struct {
	After     string                // the text of a key, exclusive; empty: from the first
	Limit     int                   // 0: all of them
	Namespace string                // only of this one; empty: of all
	May       func(org string) bool // whether those of an organisation are shown; nil: all are
}

// Wants reports whether the page may have an application.
func (p *AppPage) Wants(namespace, org string) bool {
	return (p.Namespace == "" || p.Namespace == namespace) && (p.May == nil || p.May(org))
}

// AppPage gives a part of the applications, and whether there are more after it. It looks at those of the page, and at those that are not
// to be shown.
func (c *catalog) AppPage(page *AppPage) (out []*App, more bool) {
	after, prefix := page.After, ""
	if page.Namespace != "" {
		prefix = page.Namespace + "/"
		after = max(after, prefix)
	}
	for key, a := range c.order.After(after) {
		switch {
		case !strings.HasPrefix(key, prefix):
			return out, false
		case !page.Wants(a.Manifest.Metadata.Namespace, a.Org):
		case page.Limit > 0 && len(out) == page.Limit:
			return out, true
		default:
			out = append(out, a)
		}
	}
	return out, false
}

// Cut gives the page of a list that was made whole, in any order, and whether there is more after it.
func (p *AppPage) Cut(list []view.AppView) (page []view.AppView, more bool) {
	page = slices.DeleteFunc(list, func(v view.AppView) bool { return v.Key.String() <= p.After || !p.Wants(v.Key.Namespace, v.Org) })
	slices.SortStableFunc(page, func(a, b view.AppView) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	if more = p.Limit > 0 && len(page) > p.Limit; more {
		page = page[:p.Limit]
	}
	return page, more
}
