package testenv

import (
	"net"
	"testing"
)

// FreeAddr gives an address of loopback at which nobody listens now.
func FreeAddr(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// NewOIDC starts an identity provider with the people of scripts/oidcserver, and gives its URL. root is the way to the repository's top
// from the package of the test; redirects are where browsers may go back to, at any port of loopback.
func NewOIDC(t testing.TB, root string, redirects ...string) string {
	t.Helper()
	addr := FreeAddr(t)
	serve(t, addr, buildTool(t, root, "oidcserver"), nil, append([]string{addr}, redirects...)...)
	return "http://" + addr
}
