package parents

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"runtime/debug"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// AdminPasswordFile is the file in the data directory that holds the first admin's password.
const AdminPasswordFile = "admin-password"

// APIConfig sets up the REST interface of a root or cluster. Listen is needed.
type APIConfig struct {
	Dir     string // data directory, for the first admin's password
	Version string
	api.Listen
	Limits      api.Limits
	OpenMetrics bool        // /metrics without a login
	Argon2      auth.Argon2 // of new passwords
	Audit       auth.AuditLimits
	OIDC        *auth.OIDCConfig // logins at an identity provider; nil: none
	Log         *slog.Logger
}

// API is the REST interface of a root or cluster.
type API struct {
	*api.Server
	People *auth.People
	// NewAdmin is set when the first admin was made at this start.
	NewAdmin bool
}

// OneTimeCodes is the purpose of the key, derived from that of the secrets, which seals the secrets of users' one-time codes.
const OneTimeCodes = "one-time codes"

// OpenAPI makes the REST interface of a role on the role's own store; Run listens. A new store gets its first admin.
func OpenAPI(ctx context.Context, b api.Backend, st store.Store, c APIConfig) (*API, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	secrets, err := vault.OpenKey(c.Dir) // the role has opened it before
	if err != nil {
		return nil, err
	}
	people, err := auth.OpenPeople(ctx, auth.PeopleConfig{Site: b.Name(), Store: st, Argon2: c.Argon2, Audit: c.Audit, Log: c.Log,
		SealKey: secrets.Derive(OneTimeCodes), OIDC: c.OIDC})
	if err != nil {
		return nil, err
	}
	a := &API{People: people}
	var provider *auth.OIDC
	if c.OIDC != nil {
		if provider, err = auth.NewOIDC(people, *c.OIDC); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(c.Dir, AdminPasswordFile)
	if a.NewAdmin, err = people.Bootstrap(ctx, file); err != nil {
		return nil, err
	}
	if a.NewAdmin {
		c.Log.Info("the user admin was created; its password is in a file", "path", file)
	}
	h, err := api.NewHandler(api.Options{Backend: b, People: people, OIDC: provider, Version: c.Version, Limits: c.Limits,
		OpenMetrics: c.OpenMetrics, Log: c.Log})
	if err != nil {
		return nil, err
	}
	if s, ok := b.(rootUsers); ok {
		s.ServeRootUsers(api.RootUsers(h))
	}
	if s, ok := b.(siteOrders); ok {
		s.AuditOrders(func(order wire.SiteOrder, refused string) {
			result := "ok"
			if refused != "" {
				result = string(skerry.CodeNotGranted)
			}
			people.Audit(ctx, auth.AuditRecord{User: api.RootUser(order.By), Address: "root", Operation: "upgrade-site", Object: order.Name,
				Detail: order.Image, Result: result})
		})
	}
	a.Server, err = api.NewServer(h, c.Listen)
	debug.FreeOSMemory() // hashing and describing the interface took much that nothing needs again
	return a, err
}

// siteOrders is a site, which takes up orders of its root.
type siteOrders interface {
	AuditOrders(keep func(order wire.SiteOrder, refused string))
}

// rootUsers is a site, which answers users of its root.
type rootUsers interface{ ServeRootUsers(h http.Handler) }

// role is what ServeAPI needs of a role's server.
type role interface {
	api.Backend
	doer
}

// ServeAPI makes the default organisation and the first admin and serves the REST interface until ctx ends. The role must
// be running. ready, if not nil, is told the interface once it listens.
func ServeAPI(ctx context.Context, b role, st store.Store, c APIConfig, ready func(*API)) error {
	if err := Seed(ctx, b); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a, err := OpenAPI(ctx, b, st, c)
	if err != nil {
		return fmt.Errorf("API: %w", err)
	}
	if err := a.Open(); err != nil {
		return fmt.Errorf("API: %w", err)
	}
	if ready != nil {
		ready(a)
	}
	err = a.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
