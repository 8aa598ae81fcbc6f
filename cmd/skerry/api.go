package main

import (
	"context"
	"net"

	"github.com/spf13/pflag"

	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/store"
)

// apiFlags say where a role serves users.
type apiFlags struct {
	listen    string
	names     []string
	cert, key string
	plain     bool

	served string // URL, once it is served
}

func (f *apiFlags) add(fs *pflag.FlagSet, listen string) {
	fs.StringVar(&f.listen, "api", listen, "address on which users are served over HTTPS; empty for none")
	f.addNames(fs)
}

func (f *apiFlags) addNames(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.names, "api-name", nil, "further host name or address of the API, for its certificate; may be repeated")
	fs.StringVar(&f.cert, "api-cert", "", "file with a certificate for the API, in place of one of the site's own CA")
	fs.StringVar(&f.key, "api-key", "", "file with the key of --api-cert")
	fs.BoolVar(&f.plain, "api-plain", false, "serve HTTP instead of HTTPS; on loopback only")
}

// url is where the API is served, or empty.
func (f *apiFlags) url() string { return f.served }

// startAPI serves users of a role.
func startAPI(ctx context.Context, s *service, b any, st store.Store, c node.Common, f *apiFlags) error {
	return nil
}

// reachable makes an address to dial of one to listen on.
func reachable(addr net.Addr) string {
	t, ok := addr.(*net.TCPAddr)
	if !ok {
		return addr.String()
	}
	host := t.IP.String()
	if t.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, portOf(addr))
}
