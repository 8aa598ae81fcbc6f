//go:build linux

package worker

import (
	"cmp"
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// late gives the variables of a container with these values of the secret db.
func late(t *testing.T, container *spec.Container, value spec.SecretValue) (map[string]string, error) {
	t.Helper()
	app := skerry.AppKey{Namespace: "default", Name: "shop"}
	assigned := &spec.Assignment{ID: "web-r1", Service: skerry.ServiceKey{App: app, Service: "web"},
		Spec: spec.ServiceSpec{Secrets: []spec.SecretUse{{Name: "db"}}}}
	return lateVariables(&runtime.Spec{}, assigned, container, spec.RuntimeOCI, "w1", nil,
		func(skerry.InstanceID, spec.SecretName) (spec.SecretValue, error) { return value, nil })
}

// A variable is text for every runtime: most write it down as JSON, which has no other bytes. The kernel takes none that is longer.
func TestVariablesOfSecretsAreText(t *testing.T) {
	container := &spec.Container{EnvSecrets: map[string]spec.SecretFile{"KEY": "db/key"}}
	longest := strings.Repeat("x", longestVariable-len("KEY=\x00"))
	for value, ok := range map[string]bool{"": true, longest: true, longest + "x": false,
		"a\nb\t\u00e9 \"$(KEY)'": true, "a\x00": false, "\xff\xfe": false, "caf\xe9": false} {
		vars, err := late(t, container, spec.SecretValue{"key": []byte(value)})
		if (err == nil) != ok || ok && vars["KEY"] != value {
			t.Errorf("%.40q of %d bytes: %.40q, %v", value, len(value), vars["KEY"], err)
		}
		if ok { // what the kernel says of it
			if cmd := (&exec.Cmd{Path: "/bin/true", Env: []string{"KEY=" + vars["KEY"]}}); cmd.Run() != nil {
				t.Errorf("a program does not start with %d bytes", len(value))
			}
		}
		if err != nil && strings.Contains(err.Error(), "caf") {
			t.Errorf("the reason tells the value: %v", err)
		}
	}
}

// The worker's address may have to be looked up by name: only what asks for it waits for that. What the image says stays as it is.
func TestEnvironment(t *testing.T) {
	address := func(field spec.EnvField) map[string]spec.EnvField { return map[string]spec.EnvField{"IP": field} }
	given := []string{"$(IP)"}
	for name, c := range map[string]struct {
		driver        string // other than oci
		network       bool
		command, args []string
		fields        map[string]spec.EnvField
		asks          int
		want          string // or empty if it cannot be
	}{
		"none":             {args: given, want: "/x $(IP) $(IP)"},
		"the worker's":     {network: true, args: given, fields: address(spec.FieldHostAddress), asks: 1, want: "/x $(IP) 127.0.0.1"},
		"its own":          {network: true, args: given, fields: address(spec.FieldAddress), want: "/x $(IP) 10.64.0.2"},
		"a process's":      {driver: spec.RuntimeNative, args: given, fields: address(spec.FieldAddress), asks: 1, want: "/x $(IP) 127.0.0.1"},
		"it has none":      {args: given, fields: address(spec.FieldAddresses)},
		"no address":       {fields: address(spec.FieldInstance), want: "/x $(IP)"},
		"its own command":  {command: []string{"/y", "$(IP)"}, fields: address(spec.FieldInstance), want: "/y web-r1"},
		"command and args": {command: []string{"/y"}, args: given, fields: address(spec.FieldInstance), want: "/y web-r1"},
	} {
		container := &spec.Container{Command: c.command, Args: c.args, EnvFields: c.fields}
		asked := 0
		s := &Server{opt: ServerOptions{Addrs: func() []string { asked++; return []string{"127.0.0.1:7"} }}}
		img := artifact.Image{Entrypoint: []string{"/x", "$(IP)"}}
		var task runtime.Spec
		if c.network {
			task.Network = &wire.Attachment{Addresses: []netip.Prefix{netip.MustParsePrefix("10.64.0.2/26")}}
		}
		if err := fromImage(&task, container, img); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		driver := cmp.Or(c.driver, spec.RuntimeOCI)
		if err := s.environment(&task, &spec.Assignment{ID: "web-r1"}, container, img, driver); err != nil {
			if _, ok := errors.AsType[*runtime.Unsupported](err); !ok || c.want != "" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := strings.Join(task.Args, " "); got != c.want || asked != c.asks {
			t.Errorf("%s: %q, expected %q; asked %d times for the worker's address, expected %d", name, got, c.want, asked, c.asks)
		}
	}
}

// HOSTNAME is what the machine is called inside, as everywhere else.
func TestHostnameIsTheMachines(t *testing.T) {
	for given, want := range map[string]string{"": "HOSTNAME=web-r1", "mail.example.org": "HOSTNAME=mail.example.org"} {
		var task runtime.Spec
		assigned := &spec.Assignment{ID: "web-r1", Spec: spec.ServiceSpec{Hostname: given}}
		if err := new(Server).environment(&task, assigned, &spec.Container{}, artifact.Image{}, spec.RuntimeOCI); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(task.Env, want) {
			t.Errorf("%q is not among %q", want, task.Env)
		}
	}
}
