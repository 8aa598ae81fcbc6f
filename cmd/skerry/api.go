package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/internal/otlp"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/store"
)

// apiFlags say where a role serves users.
type apiFlags struct {
	listen      string
	names       []string
	cert, key   string
	plain       bool
	openMetrics bool
	oidc        string
	oakestra    oakestraFlags

	served  string                           // URL, once it is served
	metrics func(context.Context, io.Writer) // of the role and the API that is served; nil: none is
}

func (f *apiFlags) add(fs *pflag.FlagSet, listen string) {
	fs.StringVar(&f.listen, "api", listen, "address of the HTTPS API for users; empty to disable")
	fs.StringSliceVar(&f.names, "api-name", nil, "additional host name or address of the API, for its certificate; may be repeated")
	fs.StringVar(&f.cert, "api-cert", "", "file with a certificate for the API (PEM), instead of one issued by the site's own CA")
	fs.StringVar(&f.key, "api-key", "", "file with the key of --api-cert")
	fs.BoolVar(&f.plain, "api-plain", false, "serve HTTP instead of HTTPS; only on loopback")
	fs.StringVar(&f.oidc, "oidc", "", "file with the identity provider at which users may log in; only its owner may read it")
	fs.BoolVar(&f.openMetrics, "open-metrics", false, "serve /metrics without a login")
}

// url is where the API is served, or empty.
func (f *apiFlags) url() string { return f.served }

// metricsOf writes what a role has measured, and its API if it has one.
func (f *apiFlags) metricsOf(b api.Backend) otlp.Metrics {
	return func(ctx context.Context, out io.Writer) error {
		if f.metrics != nil {
			f.metrics(ctx, out)
		} else {
			b.WriteMetrics(ctx, out)
		}
		return nil
	}
}

// startAPI serves users of a role.
func startAPI(ctx context.Context, svc *role.Service, b api.Backend, st store.Store, c node.Common, f *apiFlags) error {
	if err := f.oakestra.check(f.listen); err != nil || f.listen == "" {
		return err
	}
	provider, err := readOIDC(f.oidc)
	if err != nil {
		return err
	}
	a, err := parents.OpenAPI(ctx, b, st, parents.APIConfig{Dir: c.Dir, Version: c.Version, OpenMetrics: f.openMetrics, OIDC: provider,
		Log: c.Log, Listen: api.Listen{Addr: f.listen, Names: f.names, CertFile: f.cert, KeyFile: f.key, Plain: f.plain}})
	if err != nil {
		return fmt.Errorf("API: %w", err)
	}
	if err := a.Open(); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "API: %w", err).
			WithHint("choose another address with --api; an empty one disables the API")
	}
	f.served, f.metrics = a.URL(), a.Handler().WriteMetrics
	c.Log.Info("users are served", "role", b.Tier(), "url", f.served, "ca-pin", b.Authority().CAPin())
	svc.Start("API", a.Run)
	return f.oakestra.start(svc, a, c.Log)
}

// reachable makes an address to dial of one to listen on.
func reachable(addr *net.TCPAddr) string {
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(addr.Port))
}
