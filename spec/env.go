package spec

import (
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// EnvField is something that Skerry knows of an instance when it starts.
type EnvField string

// The fields that variables can have.
const (
	FieldInstance    EnvField = "instance"
	FieldOrdinal     EnvField = "ordinal"
	FieldService     EnvField = "service"
	FieldApp         EnvField = "app"
	FieldNamespace   EnvField = "namespace"
	FieldWorker      EnvField = "worker"
	FieldAddress     EnvField = "address"
	FieldAddresses   EnvField = "addresses"
	FieldHostAddress EnvField = "hostAddress"
)

// EnvFields lists them.
func EnvFields() []string {
	return []string{string(FieldInstance), string(FieldOrdinal), string(FieldService), string(FieldApp), string(FieldNamespace),
		string(FieldWorker), string(FieldAddress), string(FieldAddresses), string(FieldHostAddress)}
}

// MaxEnvLate bounds the variables of a container whose values are known only when an instance starts.
const MaxEnvLate = 100

// maxExpanded bounds what one text becomes when variables are put into it: a text may name the same one often.
const maxExpanded = 1 << 20

// SecretFile is a file of one of the service's secrets, as SECRET/FILE.
type SecretFile string

// Parts gives the names of the secret and of its file.
func (f SecretFile) Parts() (secret, file string) {
	secret, file, _ = strings.Cut(string(f), "/")
	return secret, file
}

// containersOf gives a service's main container and those beside it.
func containersOf(s *ServiceSpec) iter.Seq[*Container] {
	return func(yield func(*Container) bool) {
		if !yield(&s.Container) {
			return
		}
		for _, list := range [][]SideContainer{s.Init, s.Sidecars} {
			for i := range list {
				if !yield(&list[i].Container) {
					return
				}
			}
		}
	}
}

// lateVariable is a reference to a variable, as $(NAME).
var lateVariable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$?\$\(([^()\x00=]{1,256})\)`)
})

// ExpandLate puts the values of variables where a text has $(NAME), and makes $(NAME) of $$(NAME). What refers to no such variable stays
// as it is: most is the affair of a shell.
func ExpandLate(text string, late map[string]string) (string, error) {
	if len(late) == 0 || !strings.Contains(text, "$(") {
		return text, nil
	}
	size := len(text)
	out := lateVariable().ReplaceAllStringFunc(text, func(found string) string {
		_, name, _ := strings.Cut(strings.TrimSuffix(found, ")"), "(")
		value, ok := late[name]
		switch {
		case !ok || size > maxExpanded:
			return found
		case strings.HasPrefix(found, "$$"):
			return found[1:]
		}
		size += len(value)
		return value
	})
	if size > maxExpanded {
		return "", fmt.Errorf("with the values of its variables a text is larger than %d bytes", maxExpanded)
	}
	return out, nil
}

// lateEnv checks variables whose values are known only when an instance starts.
func (c *checker) lateEnv(p string, container *Container, service *ServiceSpec) {
	if n := len(container.EnvFields) + len(container.EnvSecrets); n > MaxEnvLate {
		c.add(p+".envFields", "", "%d variables in envFields and envSecrets; at most %d are allowed", n, MaxEnvLate)
	}
	check := func(field, name string, others ...bool) {
		if !CheckEnvName(name) || strings.ContainsAny(name, "()") {
			c.add(p+field, "", "%q is not a name for an environment variable", name)
		}
		if slices.Contains(others, true) {
			c.add(p+field, "give it one value", "the variable %s has another value, too", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(container.EnvFields)) {
		_, plain := container.Env[name]
		check(".envFields", name, plain)
		c.oneOf(p+".envFields", string(container.EnvFields[name]), EnvFields()...)
		if service.Checkpoints() && slices.Contains([]EnvField{FieldWorker, FieldAddress, FieldAddresses, FieldHostAddress},
			container.EnvFields[name]) {
			c.add(p+".envFields", "use migration.mode restart", "a program that is moved with its memory would keep the %s of before",
				container.EnvFields[name])
		}
		if container.EnvFields[name] == "" {
			c.add(p+".envFields", "", "the variable %s needs a field: %s", name, strings.Join(EnvFields(), ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(container.EnvSecrets)) {
		_, plain := container.Env[name]
		_, field := container.EnvFields[name]
		check(".envSecrets", name, plain, field)
		secret, file := container.EnvSecrets[name].Parts()
		switch uses := slices.ContainsFunc(service.Secrets, func(u SecretUse) bool { return u.Name == secret }); {
		case checkSecretFile(file) != nil:
			c.add(p+".envSecrets", "write SECRET/FILE, such as database/password", "%s does not name a file of a secret", name)
		case !uses:
			c.add(p+".envSecrets", "add it to the service's secrets", "%s is of a secret that is not one of the service's", name)
		}
	}
}
