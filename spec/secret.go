package spec

import (
	"fmt"
	"log/slog"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry"
)

// Limits of secrets.
const (
	MaxSecretBytes = 256 << 10 // of all files of one version
	MaxSecretFiles = 64        // of one version
	MaxSecretUses  = 20        // of one service
)

// SecretDir is where the files of a secret appear in a container, below its name, if nothing else is said.
const SecretDir = "/run/secrets"

// SecretUse is a secret that a service names: its files appear in every container of an instance.
type SecretUse struct {
	Name    string `json:"name" doc:"Name of a secret of the application's namespace." pattern:"name"`
	Version int    `json:"version,omitempty" doc:"The version to use. Default: the newest; rotating the secret then updates the service." min:"0" max:"1000000000"`
	Path    string `json:"path,omitempty" doc:"Directory in which its files appear, in memory. Default: /run/secrets/NAME."`
	Mode    string `json:"mode,omitempty" doc:"Permissions of the files in octal; they belong to the container's user. Default: 0400."`
	Current string `json:"current,omitempty" doc:"Set by Skerry: the version that instances have, with a unique suffix."`
}

// SecretValue is what a version of a secret holds: files by name. Nothing that prints or marshals it shows more than that it is there.
type SecretValue map[string][]byte

func (SecretValue) String() string { return "(secret)" }

// GoString is for %#v.
func (SecretValue) GoString() string { return "(secret)" }

// Format is for verbs that would go past String, such as %x.
func (SecretValue) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(secret)")) }

// LogValue is for log/slog.
func (SecretValue) LogValue() slog.Value { return slog.StringValue("(secret)") }

// MarshalJSON keeps it out of whatever is stored or sent as a whole.
func (SecretValue) MarshalJSON() ([]byte, error) { return []byte(`"(secret)"`), nil }

// MarshalYAML and MarshalCBOR do the same for other forms.
func (SecretValue) MarshalYAML() (any, error) { return "(secret)", nil }

// MarshalCBOR gives the text "(secret)".
func (SecretValue) MarshalCBOR() ([]byte, error) { return append([]byte{0x68}, "(secret)"...), nil }

// Size is how many bytes its files have together.
func (v SecretValue) Size() (n int) {
	for _, b := range v {
		n += len(b)
	}
	return n
}

// Files lists the names of its files.
func (v SecretValue) Files() []string { return slices.Sorted(maps.Keys(v)) }

// Check says what is wrong with a value, without telling anything of it.
func (v SecretValue) Check() error {
	switch n := v.Size(); {
	case len(v) == 0:
		return skerry.Errorf(skerry.CodeInvalid, "the secret has no files").WithHint("give at least one, such as password")
	case len(v) > MaxSecretFiles:
		return skerry.Errorf(skerry.CodeInvalid, "the secret has %d files; at most %d are allowed", len(v), MaxSecretFiles)
	case n > MaxSecretBytes:
		return skerry.Errorf(skerry.CodeTooLarge, "the secret has %d bytes; at most %d are allowed", n,
			MaxSecretBytes).WithHint("put what is not secret elsewhere")
	}
	for name := range v {
		if err := checkSecretFile(name); err != nil {
			return err
		}
	}
	return nil
}

// checkSecretFile accepts names of files that need no care anywhere.
func checkSecretFile(name string) error {
	ok := name != "" && len(name) <= 253 && name[0] != '.' && name[0] != '-'
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	}
	if ok {
		return nil
	}
	if len(name) > 40 { // it may be the value itself, given in the wrong place
		name = "(" + strconv.Itoa(len(name)) + " bytes)"
	}
	return skerry.Errorf(skerry.CodeInvalid, "%q is no name for a file of a secret",
		name).WithHint("use letters, digits, '.', '_' and '-', beginning with a letter, digit or '_'")
}

// FileMode reads the permissions.
func (u *SecretUse) FileMode() uint32 {
	m, err := strconv.ParseUint(u.Mode, 8, 32)
	if err != nil {
		return 0o400
	}
	return uint32(m)
}

// SecretName names one version of a secret, as SecretUse.Current does.
type SecretName struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Version   string `json:"version"` // number, "-", and what tells it from others of that number: a store may be restored
}

// ID is what a version is sealed under: its name without the number, which is not known when it is sealed.
func (n SecretName) ID() string {
	_, id, ok := strings.Cut(n.Version, "-")
	if !ok {
		return n.Version
	}
	return id
}

// SecretNames lists the versions of secrets that a service uses in a namespace.
func (s *ServiceSpec) SecretNames(namespace string) []SecretName {
	var out []SecretName
	for _, u := range s.Secrets {
		out = append(out, SecretName{namespace, u.Name, u.Current})
	}
	return out
}

// secrets checks what a service says of secrets.
func (c *checker) secrets(p string, service *ServiceSpec) {
	if len(service.Secrets) > MaxSecretUses {
		c.add(p+".secrets", "put values that belong together into one secret, as several files", "%d secrets; at most %d are allowed",
			len(service.Secrets), MaxSecretUses)
	}
	at := map[string]bool{}
	for i := range service.Secrets {
		u := service.Secrets[i]
		up := fmt.Sprintf("%s.secrets[%d]", p, i)
		c.name(up+".name", u.Name)
		c.between(up+".version", u.Version, 0, 1_000_000_000)
		if orDefault(&u.Path, SecretDir+"/"+u.Name); path.Clean(u.Path) == "/" {
			c.add(up+".path", "give it a directory of its own", "the files of a secret cannot take the place of the root")
		} else {
			c.absolute(up+".path", u.Path)
		}
		if at[u.Path] {
			c.add(up+".path", "give each a path of its own", "two secrets are to appear at %s", u.Path)
		}
		at[u.Path] = true
		if u.Mode != "" {
			if m, err := strconv.ParseUint(u.Mode, 8, 32); err != nil || m > 0o777 {
				c.add(up+".mode", "write it as \"0400\"", "%q is not a permission in octal", u.Mode)
			}
		}
	}
}

// secretDefaults fills in where the files of secrets appear.
func (s *ServiceSpec) secretDefaults() {
	for i := range s.Secrets {
		u := &s.Secrets[i]
		orDefault(&u.Path, SecretDir+"/"+u.Name)
		orDefault(&u.Mode, "0400")
	}
}
