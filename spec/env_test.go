package spec

import (
	"fmt"
	"strings"
	"testing"

	"skerry.dev/skerry"
)

func TestExpandLate(t *testing.T) {
	late := map[string]string{"A": "1", "B": "$(A)", "LONG": strings.Repeat("x", 1<<16)}
	for text, want := range map[string]string{
		"": "", "$(A)": "1", "a$(A)b$(B)": "a1b$(A)", "$$(A)": "$(A)", "$$$(A)": "$$(A)", "$(C)": "$(C)", "$$(C)": "$$(C)", "$(date)": "$(date)",
		"$(A": "$(A", "$()": "$()", "$((A))": "$((A))", "$A": "$A", "$( A)": "$( A)",
	} {
		if got, err := ExpandLate(text, late); err != nil || got != want {
			t.Errorf("%q became %q, expected %q: %v", text, got, want, err)
		}
	}
	if _, err := ExpandLate(strings.Repeat("$(LONG)", 100), late); err == nil {
		t.Error("a text grew without a limit")
	}
}

func TestLateEnv(t *testing.T) {
	many := map[string]EnvField{}
	for range MaxEnvLate + 1 {
		many["V"+strings.Repeat("x", len(many))] = FieldWorker
	}
	for name, bad := range map[string]struct {
		edit func(*ServiceSpec)
		want string
	}{
		"no field":       {func(s *ServiceSpec) { s.EnvFields = map[string]EnvField{"A": "node"} }, "node"},
		"an empty field": {func(s *ServiceSpec) { s.EnvFields = map[string]EnvField{"A": ""} }, "needs a field"},
		"a name":         {func(s *ServiceSpec) { s.EnvFields = map[string]EnvField{"A=\x00": FieldWorker} }, "is not a name"},
		"brackets":       {func(s *ServiceSpec) { s.EnvFields = map[string]EnvField{"A(B)": FieldWorker} }, "is not a name"},
		"two values": {func(s *ServiceSpec) {
			s.Env, s.EnvFields = map[string]string{"A": "1"}, map[string]EnvField{"A": FieldWorker}
		}, "another value"},
		"too many": {func(s *ServiceSpec) { s.EnvFields = many }, "101 variables"},
		"moved with its memory": {func(s *ServiceSpec) {
			s.EnvFields, s.Migration.Mode = map[string]EnvField{"A": FieldAddress}, MigrateCheckpoint
		}, "would keep the address"},
		"no such secret": {func(s *ServiceSpec) { s.EnvSecrets = map[string]SecretFile{"A": "other/x"} }, "is not one of the service's"},
		"no file":        {func(s *ServiceSpec) { s.EnvSecrets = map[string]SecretFile{"A": "db"} }, "does not name a file"},
		"a path":         {func(s *ServiceSpec) { s.EnvSecrets = map[string]SecretFile{"A": "db/../x"} }, "does not name a file"},
		"a directory":    {func(s *ServiceSpec) { s.EnvSecrets = map[string]SecretFile{"A": "db/a/b"} }, "does not name a file"},
		"a zero byte":    {func(s *ServiceSpec) { s.EnvSecrets = map[string]SecretFile{"A": "db/a\x00"} }, "does not name a file"},
		"in a sidecar": {func(s *ServiceSpec) {
			s.Sidecars = []SideContainer{{Name: "x", Container: Container{Image: "x", EnvFields: many}}}
		}, "101"},
		"without secrets": {func(s *ServiceSpec) { s.Secrets, s.EnvSecrets = nil, map[string]SecretFile{"A": "db/x"} }, "is not one of"},
	} {
		s := ServiceSpec{Name: "web", Container: Container{Image: "web:1"}, Secrets: []SecretUse{{Name: "db"}}}
		bad.edit(&s)
		a := Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"},
			Spec: ApplicationSpec{Services: []ServiceSpec{s}}}
		if text := problemsOf(a.Validate()); !strings.Contains(text, bad.want) {
			t.Errorf("%s: %q does not say %q", name, text, bad.want)
		}
	}
	good := ServiceSpec{Name: "web", Container: Container{Image: "web:1", EnvFields: map[string]EnvField{"A": FieldWorker},
		EnvSecrets: map[string]SecretFile{"B": "db/password"}}, Secrets: []SecretUse{{Name: "db"}}}
	a := Application{APIVersion: APIVersion, Kind: KindApplication, Metadata: Metadata{Name: "shop"},
		Spec: ApplicationSpec{Services: []ServiceSpec{good}}}
	if err := a.Validate(); err != nil {
		t.Errorf("a manifest with both: %v", err)
	}
	if got := strings.Join(FeaturesOf(&good), " "); got != "envFields envSecrets" || LackedFeature(&good, AgentFeatures()) != "" ||
		LackedFeature(&good, nil) != "envFields" {
		t.Errorf("it needs %s", got)
	}
}

func problemsOf(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprint(err, skerry.AsError(err).Problems)
}
