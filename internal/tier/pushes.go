package tier

import (
	"context"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/decide/apps"
)

// OrgBook says which organisations there are, what they may use, and whose the namespaces are.
type OrgBook interface {
	Orgs(ctx context.Context) ([]apps.Org, error)
	Namespaces(ctx context.Context) ([]apps.Namespace, error)
}

// LimitPushes holds those who push to a role's registry to the quotas of their organisations.
func LimitPushes(r Registry, book OrgBook) {
	if m, ok := r.(*Images); ok {
		m.book.Store(&book)
	}
}

// pushShare is what the organisation of a namespace may push. An organisation that is known by its namespaces alone, as the root's are at
// a site, has the default.
func (m *Images) pushShare(ctx context.Context, namespace string) (share artifact.Share, err error) {
	book := m.book.Load()
	if book == nil {
		return share, nil
	}
	spaces, err := (*book).Namespaces(ctx)
	if err != nil {
		return share, err
	}
	for _, n := range spaces {
		if n.Name == namespace {
			share.Owner = n.Org
		}
	}
	if share.Owner == "" {
		return share, nil // the site's
	}
	share.Namespaces = spacesOf(spaces, share.Owner)
	orgs, err := (*book).Orgs(ctx)
	if err != nil {
		return share, err
	}
	var quota apps.Quota
	for _, o := range orgs {
		if o.Name == share.Owner {
			quota = o.Quota
		}
	}
	share.Bytes = int64(quota.MayPush())
	share.Hint = "delete images with `skerry delete image NAME`, or have an admin raise it with `skerry org quota " + share.Owner + " --pushed`"
	return share, nil
}

func spacesOf(spaces []apps.Namespace, org string) (out []string) {
	for _, n := range spaces {
		if n.Org == org {
			out = append(out, n.Name)
		}
	}
	return out
}

// AddPushed adds to what an organisation uses how much it pushed to a role's registry.
func AddPushed(ctx context.Context, r Registry, book OrgBook, org string, u *apps.Usage) error {
	m, ok := r.(*Images)
	if !ok {
		return nil
	}
	spaces, err := book.Namespaces(ctx)
	if err != nil {
		return err
	}
	u.Pushed, u.Uploads = skerry.Bytes(m.handler.Pushed(spacesOf(spaces, org)...)), m.handler.Uploads(org)
	return nil
}

// Clear removes what was uploaded to a namespace and is part of no image, and reports whether images are left.
func (m *Images) Clear(namespace string) (image string, err error) { return m.handler.Clear(namespace) }
