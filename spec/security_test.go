package spec

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Every field of a manifest either is harmless, which testdata/levels.txt says, or has a security level.
func TestEveryFieldHasALevel(t *testing.T) {
	text, err := os.ReadFile("testdata/levels.txt")
	if err != nil {
		t.Fatal(err)
	}
	harmless := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			harmless[line] = true
		}
	}
	found := map[string]bool{}
	var walk func(reflect.Type)
	seen := map[reflect.Type]bool{}
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
		case reflect.Struct:
			if seen[typ] || typ.PkgPath() != reflect.TypeFor[ServiceSpec]().PkgPath() {
				return
			}
			seen[typ] = true
			for i := range typ.NumField() {
				f := typ.Field(i)
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				if !f.IsExported() || f.Tag.Get("json") == "" || name == "-" {
					continue
				}
				if name != "" {
					found[typ.Name()+"."+f.Name] = true
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[ServiceSpec]())
	for f := range found {
		if harmless[f] == (fieldLevels[f] != nil) {
			t.Errorf("%s: give it a level in fieldLevels if it can weaken what keeps services apart from the host and each other, else list it in testdata/levels.txt", f)
		}
	}
	for f := range harmless {
		if !found[f] {
			t.Errorf("testdata/levels.txt lists %s, which is no field of a manifest", f)
		}
	}
	for f := range fieldLevels {
		if !found[f] {
			t.Errorf("%s has a level and is no field of a manifest", f)
		}
	}
}

func TestLevelNeeds(t *testing.T) {
	var s ServiceSpec
	if got := s.LevelNeeds(); len(got) != 0 {
		t.Errorf("nothing is asked for: %v", got)
	}
	s.Runtime = RuntimeNative
	s.Security.AddCaps = []string{"NET_BIND_SERVICE", "chown", "CAP_SYS_ADMIN", "KILL"}
	s.Sidecars = []SideContainer{{Container: Container{Security: Security{NewPrivs: true}}}}
	s.Ports = []Port{{HostPort: -1}, {HostPort: 22}}
	var got []string
	for _, n := range s.LevelNeeds() {
		got = append(got, fmt.Sprintf("%s %s: %s", n.Path, n.Level, n.What))
	}
	want := []string{"runtime privileged: a process of the host", "security.addCaps privileged: the capability SYS_ADMIN",
		"sidecars[0].security.newPrivileges privileged: programs that gain privileges", "ports[1].hostPort privileged: the host's port 22"}
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.Runtime = RuntimeOCI
	if n := s.LevelNeeds()[1]; n.Level != LevelBaseline {
		t.Errorf("in a container: %+v", n)
	}
}

func TestSecurityLevels(t *testing.T) {
	var l SecurityLevel
	if err := l.UnmarshalStrict(fmt.Appendf(nil, "%q", "root")); err == nil || !strings.Contains(err.Error(), "restricted, baseline and privileged") {
		t.Errorf("%v", err)
	}
	if err := l.UnmarshalStrict(fmt.Appendf(nil, "%q", "baseline")); err != nil || l != LevelBaseline {
		t.Errorf("%q, %v", l, err)
	}
	if SecurityLevel("").Allows(LevelBaseline) || !LevelPrivileged.Allows(LevelBaseline) || LevelBaseline.Allows(LevelPrivileged) {
		t.Error("levels are not in their order")
	}
}
