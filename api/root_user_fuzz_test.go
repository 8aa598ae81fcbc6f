package api

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
)

// FuzzRootUser: no name that a root sends is that of a user of the site, or more than a line of a log holds.
func FuzzRootUser(f *testing.F) {
	for _, name := range []string{"ada", "", "oidc.ada@example.org", "root/ada", "a b", "\x1b[2J", "a\nb", "\xff", strings.Repeat("a", 200)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		who := rootUser(name)
		if skerry.CheckName(who.User) == nil || len(who.User) > maxRootUser+len(rootUserPrefix) || !plainText(who.User) ||
			!strings.HasPrefix(who.User, rootUserPrefix) || len(who.Grants) > 0 {
			t.Errorf("the name %q is taken as %+v", name, who)
		}
	})
}
