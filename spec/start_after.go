package spec

import (
	"fmt"
	"slices"
	"strings"
)

// Values of startAfter.condition.
const (
	AfterRunning   = "running"
	AfterReady     = "ready"
	AfterCompleted = "completed"
)

// StartAfter is another service for which one waits before it starts.
type StartAfter struct {
	Service string `json:"service" doc:"Name of a service of the same application." pattern:"name"`
	// An instance of its present version runs or is ready, or the job has succeeded in its present version.
	Condition string `json:"condition,omitempty" doc:"How far it must be. Default: ready; completed for a job." enum:"running,ready,completed"`
}

// startAfter checks for whom the services of an application wait.
func (check *checker) startAfter(app *ApplicationSpec) {
	for index := range app.Services {
		service := &app.Services[index]
		path := fmt.Sprintf("spec.services[%d].startAfter", index)
		check.atMost(path, len(service.StartAfter), MaxLinks)
		if len(service.StartAfter) > 0 && service.Mode == ModeCron {
			check.add(path, "leave it out", "a cron service starts by its schedule")
		}
		for j, after := range service.StartAfter {
			at, other := fmt.Sprintf("%s[%d]", path, j), app.Service(after.Service)
			check.oneOf(at+".condition", after.Condition, AfterRunning, AfterReady, AfterCompleted)
			switch {
			case after.Service == service.Name:
				check.add(at+".service", "", "a service cannot wait for itself")
			case other == nil:
				check.add(at+".service", "startAfter names services of the same application", "there is no service %q", after.Service)
			case slices.ContainsFunc(service.StartAfter[:j], func(o StartAfter) bool { return o.Service == after.Service }):
				check.add(at+".service", "", "it waits for %q twice", after.Service)
			case other.Mode == ModeCron:
				check.add(at+".service", "", "service %s runs by its schedule, and nobody can wait for it", other.Name)
			case other.Mode == ModeJob && after.Condition != AfterCompleted && after.Condition != "":
				check.add(at+".condition", "write completed", "service %s is a job", other.Name)
			case other.Mode != ModeJob && after.Condition == AfterCompleted:
				check.add(at+".condition", "add mode: job there, or write ready", "service %s is not a job, and is never completed", other.Name)
			case other.Sleeps() || other.Replicas != nil && *other.Replicas == 0:
				check.add(at+".service", "give it an instance", "service %s may have no instance", other.Name)
			}
		}
		if ring := waitsForItself(app, service.Name); ring != nil {
			check.add(path, "", "it waits for itself: %s", strings.Join(ring, ", which waits for "))
		}
	}
}

// waitsForItself gives the way by which a service waits for itself by others, or nil.
func waitsForItself(app *ApplicationSpec, name string) []string {
	var walk func(at string, way []string) []string
	seen := map[string]bool{}
	walk = func(at string, way []string) []string {
		s := app.Service(at)
		if s == nil || seen[at] {
			return nil
		}
		seen[at] = true
		for _, after := range s.StartAfter {
			if after.Service == name && at != name {
				return append(way, at, name)
			}
			if ring := walk(after.Service, append(way, at)); ring != nil {
				return ring
			}
		}
		return nil
	}
	return walk(name, nil)
}

func (s *StartAfter) setDefaults(app *ApplicationSpec) {
	if other := app.Service(s.Service); other != nil && other.Mode == ModeJob {
		orDefault(&s.Condition, AfterCompleted)
	}
	orDefault(&s.Condition, AfterReady)
}
