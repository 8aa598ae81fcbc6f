package spec

import (
	"strings"
	"time"
)

// Hook is done before a container is asked to end: exactly one of exec, http and sleep.
type Hook struct {
	Exec  *ExecProbe `json:"exec,omitempty" doc:"A command in the container."`
	HTTP  *HTTPProbe `json:"http,omitempty" doc:"A GET to the instance; its answer has no effect."`
	Sleep Duration   `json:"sleep,omitempty" doc:"Time to wait."`
}

// preStop checks what is done before a container ends.
func (check *checker) preStop(path string, hook *Hook, service *ServiceSpec) {
	if hook == nil {
		return
	}
	kinds := 0
	for _, is := range []bool{hook.Exec != nil, hook.HTTP != nil, hook.Sleep != 0} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		check.add(path, "write exactly one of exec, http and sleep", "%d kinds of hook are given", kinds)
	}
	if hook.Exec != nil && len(hook.Exec.Command) == 0 {
		check.add(path+".exec.command", "", "a command is missing")
	}
	if hook.HTTP != nil {
		check.between(path+".http.port", hook.HTTP.Port, 1, 65535)
		if hook.HTTP.Path != "" && !strings.HasPrefix(hook.HTTP.Path, "/") {
			check.add(path+".http.path", "", "%q must begin with /", hook.HTTP.Path)
		}
	}
	grace := DefaultGrace
	if service.TerminationGrace != nil {
		grace = time.Duration(*service.TerminationGrace)
	}
	if time.Duration(hook.Sleep) > grace {
		check.add(path+".sleep", "raise terminationGrace", "%s is longer than terminationGrace, %s, in which the program must end, too",
			hook.Sleep, grace)
	}
}

// DefaultGrace is the time between the stop signal and the kill of a service that names none.
const DefaultGrace = 10 * time.Second

// hasHook reports whether a container of a service runs a command before it ends.
func hasHook(k *Container) bool { return k.PreStop != nil && k.PreStop.Exec != nil }

// HookOf gives what is done before a container ends; nil: nothing.
func HookOf(s *ServiceSpec, container string) *Hook {
	if container == MainContainer {
		return s.PreStop
	}
	for i := range s.Sidecars {
		if s.Sidecars[i].Name == container {
			return s.Sidecars[i].PreStop
		}
	}
	return nil
}
