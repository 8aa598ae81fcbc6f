package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// SecurityLevel says how much of what weakens isolation an organisation may use at a site. The levels are those of Kubernetes' Pod
// Security Standards, with one difference: a container of any level may run as root where it has a user namespace, which makes
// that root nobody outside.
type SecurityLevel string

// Levels, from the least to the most.
const (
	// LevelRestricted is everybody's without a grant: no capabilities (NET_BIND_SERVICE may be added), the system call filter,
	// no new privileges, nothing of the host.
	LevelRestricted SecurityLevel = "restricted"
	// LevelBaseline adds the capabilities that most images expect, set-user-ID programs, and devices that the site offers.
	LevelBaseline SecurityLevel = "baseline"
	// LevelPrivileged is what the operator of the machine may do.
	LevelPrivileged SecurityLevel = "privileged"
)

// SecurityLevels are all levels, from the least to the most.
func SecurityLevels() []SecurityLevel {
	return []SecurityLevel{LevelRestricted, LevelBaseline, LevelPrivileged}
}

// rank is the least for the empty level, too.
func (l SecurityLevel) rank() int { return max(slices.Index(SecurityLevels(), l), 0) }

// Allows reports whether what needs another level may be used with this one.
func (l SecurityLevel) Allows(need SecurityLevel) bool { return l.rank() >= need.rank() }

// withoutContainer gives the level of what LevelBaseline may do in a container, where there is none: CHOWN or a set-user-ID program
// then reach the host's own files.
func (l SecurityLevel) withoutContainer() SecurityLevel {
	if l == LevelBaseline {
		return LevelPrivileged
	}
	return l
}

// UnmarshalStrict accepts the names of levels alone. In records any other counts as the least.
func (l *SecurityLevel) UnmarshalStrict(data []byte) error {
	var text SecurityLevel
	if err := json.Unmarshal(data, (*string)(&text)); err != nil || !slices.Contains(SecurityLevels(), text) {
		return fmt.Errorf("%s is no security level; the levels are restricted, baseline and privileged", data)
	}
	*l = text
	return nil
}

// LevelNeed is a field of a service that needs more than LevelRestricted.
type LevelNeed struct {
	Path  string // within the service, as "init[0].security.addCaps"
	Field string // type and field, as "Security.AddCaps"
	Level SecurityLevel
	What  string // what is asked for, as "the capability SYS_ADMIN"
}

// baselineCaps are the capabilities that the level baseline has or may add: those of the Pod Security Standards.
var baselineCaps = map[string]bool{
	"AUDIT_WRITE": true, "CHOWN": true, "DAC_OVERRIDE": true, "FOWNER": true, "FSETID": true, "KILL": true, "MKNOD": true,
	"NET_BIND_SERVICE": true, "SETFCAP": true, "SETGID": true, "SETPCAP": true, "SETUID": true, "SYS_CHROOT": true,
}

// CapRestricted is the one capability that the level restricted may add.
const CapRestricted = "NET_BIND_SERVICE"

// CapName gives a capability's name without its prefix, in capitals.
func CapName(s string) string { return strings.TrimPrefix(strings.ToUpper(s), "CAP_") }

// fieldLevels are the fields of a manifest that can weaken isolation. Each is called with the field's value where that is not
// the zero one, and gives nothing where the value does no harm. testdata/levels.txt lists all other fields as harmless; a new
// field belongs to the one or the other.
var fieldLevels = map[string]func(v any) (level SecurityLevel, what string){
	"Security.Privileged": func(any) (SecurityLevel, string) { return LevelPrivileged, "a privileged container" },
	"Security.NewPrivs":   func(any) (SecurityLevel, string) { return LevelBaseline, "programs that gain privileges" },
	"Security.Seccomp": func(v any) (SecurityLevel, string) {
		if v == "default" {
			return "", ""
		}
		return LevelPrivileged, "no system call filter"
	},
	"Security.AddCaps": func(v any) (level SecurityLevel, what string) {
		for _, c := range v.([]string) {
			need := LevelPrivileged
			switch c = CapName(c); {
			case c == CapRestricted:
				continue
			case baselineCaps[c]:
				need = LevelBaseline
			}
			if !level.Allows(need) {
				level, what = need, "the capability "+c
			}
		}
		return level, what
	},
	"ServiceSpec.Runtime": func(v any) (SecurityLevel, string) {
		if v == RuntimeNative {
			return LevelPrivileged, "a process of the host"
		}
		return "", ""
	},
	"ServiceSpec.Devices": func(any) (SecurityLevel, string) { return LevelBaseline, "a device" },
	"Resources.GPUs":      func(any) (SecurityLevel, string) { return LevelBaseline, "a graphics processor" },
	"Resources.TPUs":      func(any) (SecurityLevel, string) { return LevelBaseline, "a tensor processor" },
	"Volume.Host": func(v any) (SecurityLevel, string) {
		return LevelPrivileged, "the host's path " + v.(*HostVolume).Path
	},
	"Volume.NFS": func(v any) (SecurityLevel, string) {
		return LevelPrivileged, "the NFS server's " + v.(*NFSVolume).Source()
	},
	"Port.HostPort": func(v any) (SecurityLevel, string) {
		if n := v.(int); n > 0 {
			return LevelPrivileged, fmt.Sprintf("the host's port %d", n)
		}
		return "", "" // the worker chooses one, of those meant for that
	},
	"Migration.Mode": func(v any) (SecurityLevel, string) {
		if v == MigrateCheckpoint {
			return LevelBaseline, "an image of its memory that the host restores"
		}
		return "", ""
	},
}

// LevelNeeds lists what of a service needs more than LevelRestricted, in the order of the manifest.
func (s *ServiceSpec) LevelNeeds() (out []LevelNeed) {
	eachField(reflect.ValueOf(s).Elem(), "", func(field, path string, v reflect.Value) {
		if of := fieldLevels[field]; of != nil && !v.IsZero() {
			value := v.Interface()
			if v.Kind() == reflect.String {
				value = v.String() // without its type
			}
			level, what := of(value)
			if s.Runtime == RuntimeNative && strings.HasPrefix(field, "Security.") {
				level = level.withoutContainer()
			}
			if level.Allows(LevelBaseline) {
				out = append(out, LevelNeed{Path: path, Field: field, Level: level, What: what})
			}
		}
	})
	return out
}

// eachField visits all fields of a value's structs that are part of a manifest. The path has their names in JSON.
func eachField(value reflect.Value, path string, visit func(field, path string, value reflect.Value)) {
	switch value.Kind() {
	case reflect.Pointer:
		if !value.IsNil() {
			eachField(value.Elem(), path, visit)
		}
	case reflect.Slice:
		for i := range value.Len() {
			eachField(value.Index(i), fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Struct:
		for i := range value.NumField() {
			f := value.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || f.Tag.Get("json") == "" || name == "-" {
				continue
			}
			at := path
			if name != "" {
				at = strings.TrimPrefix(path+"."+name, ".")
				visit(value.Type().Name()+"."+f.Name, at, value.Field(i))
			}
			eachField(value.Field(i), at, visit)
		}
	}
}
