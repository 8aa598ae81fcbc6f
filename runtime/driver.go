// Package runtime is the contract between the worker and whatever runs code on it: processes, containers, virtual
// machines, WebAssembly. It owns the words (Spec, Handle, Exit) and does nothing itself. It never speaks about
// placement or networks; a wire.Attachment is all it knows of them. The worker and every driver import it.
//
//	Start ──> running ──> exited ──> Remove ──> nothing left
//	             │  ^
//	             │  └── a new agent finds it again with List
//	             └── Stop: signal, grace, KILL
package runtime

import (
	"context"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Driver runs tasks in one way. Its methods may be called at the same time, also for one task. Tasks outlive the
// process that started them: a driver opened later on the same state directory lists, waits for and removes them.
//
// A task that is not known gives ErrNotFound, except to Remove, for which that is success.
type Driver interface {
	// Name is the word that manifests use: "oci", "native".
	Name() string
	// Check runs a small task for real and tells what works. It takes up to a few seconds.
	Check(ctx context.Context) Report
	// Start makes a task and sets it going. It returns when the program is being executed, not when it is ready. After
	// an error nothing of the task is left. The error is an *InvalidSpec, an *Unsupported, a *StartError or ErrExists
	// where one of these fits.
	Start(ctx context.Context, spec Spec) (Handle, error)
	// Stop sends the stop signal, waits up to grace for the end, then kills. It returns when the task has exited. A task
	// that has already exited is no error. When ctx ends first, the task may still be running.
	Stop(ctx context.Context, h Handle, grace time.Duration) error
	// Wait returns when the task has exited, also when that was before this process began.
	Wait(ctx context.Context, h Handle) (Exit, error)
	// Status looks once.
	Status(ctx context.Context, h Handle) (Status, error)
	// Remove kills what still runs and deletes all there is of the task: processes, cgroups, mounts, files, logs. It is
	// idempotent and completes what a crash left half-done.
	Remove(ctx context.Context, h Handle) error
	// List gives every task of this driver's state directory, also half-made ones, in order of ID.
	List(ctx context.Context) ([]Handle, error)
	// ListOf gives those of one instance. Its cost does not depend on how many others have.
	ListOf(ctx context.Context, instance skerry.InstanceID) ([]Handle, error)
	// Close ends the driver's own goroutines and descriptors. Tasks run on.
	Close() error
}

// TaskID names one attempt to run one container of an instance, "<instance>.<container>.<attempt>": letters, digits,
// and "._-", beginning with a letter or digit, at most 200 bytes. It is unique on the worker, for ever.
type TaskID string

// Handle names a task. It is small, and keeps its meaning across restarts of the agent; it may be stored as JSON.
type Handle struct {
	ID        TaskID            `json:"id"`
	Driver    string            `json:"driver"`
	Instance  skerry.InstanceID `json:"instance,omitempty"`
	Container string            `json:"container,omitempty"`
	// PID is the first process of the task as the host numbers it; 0 for a task that never got so far.
	PID     int               `json:"pid,omitempty"`
	Started time.Time         `json:"started"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Monitor is the program, with its version, that runs the task's machine; empty: it has none, or it is not known.
	Monitor string `json:"monitor,omitempty"`
}

// Exit is how a task ended.
type Exit struct {
	// Code is the exit status, 0 to 255; 128 + Signal for a task that died of a signal; -1 when Lost.
	Code int `json:"code"`
	// Signal is the number of the signal that ended it, 0 for none. A program that itself exits with 128 + n cannot be
	// told apart from one that was ended by signal n.
	Signal int `json:"signal,omitempty"`
	// OOMKilled says that the kernel killed a process of the task for its memory limit, and the task failed.
	OOMKilled bool `json:"oomKilled,omitempty"`
	// Lost says that nobody saw the end: the supervisor was killed, or the machine restarted.
	Lost bool      `json:"lost,omitempty"`
	At   time.Time `json:"at"`
}

// State is what a task does.
type State string

// The states of a task. A task in StateBroken was left half-made by a crash of the agent; remove it.
const (
	StateRunning State = "running"
	StatePaused  State = "paused"
	StateExited  State = "exited"
	StateBroken  State = "broken"
)

// Status is a look at a task. Exit is nil unless State is StateExited.
type Status struct {
	State State `json:"state"`
	PID   int   `json:"pid,omitempty"`
	Exit  *Exit `json:"exit,omitempty"`
}

// Report is what a driver's self-test found.
type Report struct {
	Driver string `json:"driver"`
	Passed bool   `json:"passed"`
	// Absent says that nobody has installed its programs, and most machines do without.
	Absent bool `json:"absent,omitempty"`
	// Cause says what is missing or, beside Passed, what was tried first and refused. Cure says what to do about it.
	Cause string `json:"cause,omitempty"`
	Cure  string `json:"cure,omitempty"`
	// Emulated says that its machines have no real processor, and are many times slower.
	Emulated bool `json:"emulated,omitempty"`
	// Abilities are those that were seen to work, sorted.
	Abilities []Ability     `json:"abilities,omitempty"`
	Version   string        `json:"version,omitempty"`
	Took      time.Duration `json:"took"`
}

// Refusal says in one line why the self-test did not pass, and what to do about it; empty when it did.
func (r *Report) Refusal() string {
	switch {
	case r.Passed:
		return ""
	case r.Cure == "":
		return r.Cause
	}
	return r.Cause + "; " + r.Cure
}

// Ability is something that not every driver, or not every machine, can do.
type Ability string

// The abilities.
const (
	AbilityExec         Ability = "exec"
	AbilityStats        Ability = "stats"
	AbilityLogs         Ability = "logs"
	AbilityPause        Ability = "pause"
	AbilityCPU          Ability = "cpu-limit"
	AbilityMemory       Ability = "memory-limit"
	AbilityPids         Ability = "pids-limit"
	AbilityCPUSet       Ability = "cpuset"
	AbilitySeccomp      Ability = "seccomp"
	AbilityCapabilities Ability = "capabilities"
	AbilityImages       Ability = "images"
	AbilityReadOnlyRoot Ability = "read-only-root"
	AbilityMounts       Ability = "mounts"
	AbilityDevices      Ability = "devices"
	AbilityNetNS        Ability = "network-namespace"
	AbilityHostNetwork  Ability = "host-network"
	AbilityPIDNS        Ability = "pid-namespace"
	AbilityTTY          Ability = "tty"
	AbilitySysctls      Ability = "sysctls"
	AbilityPrivileged   Ability = "privileged"
	AbilityIO           Ability = "io"       // limits of rates
	AbilityIOWeight     Ability = "ioWeight" // shares of a disk
	AbilityResize       Ability = spec.AbilityResize
	AbilityCheckpoint   Ability = spec.AbilityCheckpoint
	AbilityUser         Ability = "user"
	AbilityDir          Ability = "working-directory"
	AbilityUlimits      Ability = "ulimits"
	AbilityHosts        Ability = "hosts" // a hosts file of its own
	AbilitySignals      Ability = "signals"
	AbilityHandler      Ability = "http-handler"
	AbilityUserNS       Ability = spec.AbilityUserNS
	AbilityUserNSCopies Ability = spec.AbilityUserNSCopies
)
