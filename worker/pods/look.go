package pods

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"skerry.dev/skerry/wire"
)

// Stage is how far a pod has come.
type Stage int

// The stages, in their order. A pod that is stuck does not come further without help: we take it away, and the core decides about another.
const (
	Pending Stage = iota
	Unplaced
	Stuck
	Running
	Ended
)

// Sight is what the status of a pod means for the instance whose attempt it is.
type Sight struct {
	Stage   Stage
	Reason  string // why it does not run, for people; at most maxReason bytes
	Since   time.Time
	Started bool // its startup probe has passed
	Ready   bool
	Exit    wire.Exit // of one that has ended
	Ran     bool      // the container of one that has ended was executed, as far as its status says
	Init    string    // the init container that failed, because of which one that has ended never ran
}

// maxReason leaves room in the 500 bytes that the site takes.
const maxReason = 400

// stuck are reasons for which a container waits that do not pass, or that pass as well in another pod.
var stuck = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
	"CrashLoopBackOff"}

// neverRan are reasons of an end for which nothing was executed.
var neverRan = []string{"ContainerCannotRun", "StartError"}

// Look tells what a pod's status means. The status is whatever the API server holds: every value of it may be missing, or nonsense.
func Look(pod *Pod, now time.Time) Sight {
	status := statusOf(pod, mainContainer)
	if status != nil && status.State.Terminated != nil {
		ended := status.State.Terminated
		return Sight{Stage: Ended, Exit: exitOf(pod, ended, now), Ran: !slices.Contains(neverRan, ended.Reason)}
	}
	switch pod.Status.Phase {
	case "Failed":
		if failed := failedInit(pod); failed != nil && pod.Status.Reason == "" {
			return Sight{Stage: Ended, Init: failed.Name, Exit: exitOf(pod, failed.State.Terminated, now)}
		}
		e := wire.Exit{Code: lostCode, At: now, Message: why(cmp.Or(pod.Status.Reason, "Failed"), pod.Status.Message)}
		e.StorageExceeded = pod.Status.Reason == "Evicted" && strings.Contains(pod.Status.Message, "ephemeral")
		return Sight{Stage: Ended, Exit: e, Ran: status != nil && status.State.Running != nil}
	case "Succeeded":
		return Sight{Stage: Ended, Exit: wire.Exit{At: now}, Ran: true}
	}
	switch {
	case status != nil && status.State.Running != nil:
		s := Sight{Stage: Running, Since: sane(status.State.Running.StartedAt.Time, now), Ready: status.Ready,
			Started: status.Started == nil || *status.Started}
		switch {
		case !pod.Metadata.DeletionTimestamp.IsZero():
			s.Ready, s.Reason = false, "its pod is being deleted in Kubernetes"
		case !s.Ready:
			s.Reason = "it is not ready: Kubernetes' readiness probe has not passed"
		}
		return s
	case status != nil && status.State.Waiting != nil && slices.Contains(stuck, status.State.Waiting.Reason):
		return Sight{Stage: Stuck, Reason: why(status.State.Waiting.Reason, status.State.Waiting.Message)}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == "PodScheduled" && c.Status == "False" && pod.Spec.NodeName == "" {
			return Sight{Stage: Unplaced, Reason: why(cmp.Or(c.Reason, "Unschedulable"), c.Message)}
		}
	}
	if s := before(pod); s.Reason != "" {
		return s
	}
	s := Sight{Stage: Pending, Reason: "its pod is pending"}
	if status != nil && status.State.Waiting != nil {
		s.Reason = why(cmp.Or(status.State.Waiting.Reason, "pending"), status.State.Waiting.Message)
	}
	return s
}

// lostCode is the exit status of what ended without one.
const lostCode = 255

func exitOf(pod *Pod, ended *terminated, now time.Time) wire.Exit {
	exit := wire.Exit{Code: ended.ExitCode, At: sane(ended.FinishedAt.Time, now), OOMKilled: ended.Reason == "OOMKilled"}
	if exit.Code < 0 || exit.Code > 255 {
		exit.Code = lostCode
	}
	signal := ended.Signal
	if signal == 0 && exit.Code > 128 {
		signal = exit.Code - 128
	}
	exit.Signal = signals[signal]
	switch ended.Reason {
	case "ContainerCannotRun", "StartError":
		exit.Code, exit.Signal, exit.Message = notStarted, "", why(ended.Reason, ended.Message)
	case "ContainerStatusUnknown", "DeadlineExceeded":
		exit.Code, exit.Signal, exit.Message = lostCode, "", why(ended.Reason, ended.Message)
	}
	if pod.Status.Reason == "Evicted" {
		exit.Message = why("Evicted", pod.Status.Message)
		exit.StorageExceeded = strings.Contains(pod.Status.Message, "ephemeral")
		if exit.Code == 0 {
			exit.Code = lostCode
		}
	}
	return exit
}

// notStarted is the exit status of what was never executed, as for a command that a shell does not find.
const notStarted = 127

// signals are the names of those that programs usually end by.
var signals = map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 31: "SIGSYS"}

// sane keeps a clock that is wrong, or a hostile one, from mattering: no time at all, and none that is still to come.
func sane(t, now time.Time) time.Time {
	if t.IsZero() || t.After(now) || t.Year() < 2000 {
		return now
	}
	return t
}

// why joins a reason and its message to one line of bounded length.
func why(reason, message string) string {
	text := clean(reason, 100)
	if message = clean(message, maxReason-len(text)-2); message != "" {
		return fmt.Sprintf("%s: %s", text, message)
	}
	return text
}

// clean makes one printable line of a text that is somebody else's, of at most some bytes.
func clean(text string, most int) string {
	if len(text) > 4*maxReason {
		text = text[:4*maxReason]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
