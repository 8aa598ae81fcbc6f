package runtime

import (
	"errors"
	"testing"
)

// TestRefuse: a driver refuses what it has a reason for, and nothing that it was not asked for.
func TestRefuse(t *testing.T) {
	reasons := map[Ability]string{AbilitySysctls: "no kernel of its own", AbilityPrivileged: "nothing is privileged"}
	for _, c := range []struct {
		name string
		spec Spec
		want Ability
	}{
		{"nothing asked", Spec{}, ""},
		{"asked, with no reason against it", Spec{HostNetwork: true}, ""},
		{"asked", Spec{Privileged: true}, AbilityPrivileged},
		{"two asked: the first of the table", Spec{Privileged: true, Sysctls: map[string]string{"net.core.somaxconn": "1"}}, AbilitySysctls},
	} {
		err := c.spec.Refuse("sandbox", reasons)
		refused, _ := errors.AsType[*Unsupported](err)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: refused: %v", c.name, err)
		case c.want != "" && (refused == nil || refused.Ability != c.want || refused.Reason != reasons[c.want] || refused.Driver != "sandbox"):
			t.Errorf("%s: %v, want a refusal of %s", c.name, err, c.want)
		}
	}
}
