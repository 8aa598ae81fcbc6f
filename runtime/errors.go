package runtime

import (
	"errors"
	"fmt"

	"skerry.dev/skerry"
)

// ErrNotFound is given for a task that the driver does not know, ErrExists for a task ID that is in use already.
var (
	ErrNotFound = errors.New("no such task")
	ErrExists   = errors.New("a task of this ID exists; remove it first")
)

// Unsupported says that a driver, or this machine, cannot do a thing.
type Unsupported struct {
	Ability Ability
	Driver  string
	Reason  string
}

func (u *Unsupported) Error() string {
	return fmt.Sprintf("runtime %s does not support %s: %s", u.Driver, u.Ability, u.Reason)
}

// Refuse names what a spec asks for and a driver has a reason not to do, or gives nil.
func (s *Spec) Refuse(driver string, reasons map[Ability]string) error {
	for _, c := range []struct {
		ability Ability
		asked   bool
	}{
		{AbilitySysctls, len(s.Sysctls) > 0},
		{AbilityDevices, len(s.Devices)+len(s.Groups)+len(s.Hooks) > 0},
		{AbilityUserNS, s.UserNS != nil},
		{AbilityPIDNS, s.SharePID != nil},
		{AbilityHostNetwork, s.HostNetwork},
		{AbilitySeccomp, s.Seccomp == SeccompDefault},
		{AbilityPrivileged, s.Privileged},
	} {
		if reason, refused := reasons[c.ability]; refused && c.asked {
			return &Unsupported{Ability: c.ability, Driver: driver, Reason: reason}
		}
	}
	return nil
}

// InUse says that a task uses more memory than it was to be given. Its limit stayed.
type InUse struct {
	Used, Limit skerry.Bytes
}

func (e *InUse) Error() string {
	return fmt.Sprintf("it uses %s of memory, and the limit was to be %s", e.Used, e.Limit)
}

// InvalidSpec says which field of a Spec is wrong, and what would be right. Nothing was touched.
type InvalidSpec struct {
	Field  string
	Reason string
}

func (e *InvalidSpec) Error() string { return e.Field + ": " + e.Reason }

// StartError says why a task could not be started. Field is the field of the Spec to look at, empty when it is not the
// Spec's fault; Hint says what to do.
type StartError struct {
	Field string
	Hint  string
	Err   error
}

func (e *StartError) Error() string {
	s := ""
	if e.Field != "" {
		s += e.Field + ": "
	}
	s += e.Err.Error()
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *StartError) Unwrap() error { return e.Err }
