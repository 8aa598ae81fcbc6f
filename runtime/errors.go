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
