package convert

import (
	"strings"

	"skerry.dev/skerry/spec"
)

// lifecycle takes what is done when a container has started, and before it ends.
func (it *pod) lifecycle(from *fields, out *spec.Container) {
	if start := from.sub("postStart"); start.m != nil {
		if out.PostStart = it.hook(start, "postStart"); out.PostStart != nil && out.PostStart.HTTP != nil {
			start.approx("httpGet", "postStart.http; an answer of status 400 or more counts as a failure, too")
		}
	}
	if stop := from.sub("preStop"); stop.m != nil {
		out.PreStop = it.hook(stop, "preStop")
	}
	if signal := from.text("stopSignal", ""); signal != "" {
		from.refuse("stopSignal", "write stopSignal of the container")
	}
	from.nothingLike(nil)
}

func (it *pod) hook(from *fields, became string) *spec.Hook {
	hook := &spec.Hook{}
	if from.has("exec") {
		run := from.sub("exec")
		hook.Exec = &spec.ExecProbe{Command: run.texts("command", "")}
		run.nothingLike(nil)
	}
	if from.has("httpGet") {
		get := from.sub("httpGet")
		hook.HTTP = it.get(get, became)
		if strings.EqualFold(get.text("scheme", ""), "https") {
			get.refuse("scheme", "it is asked without TLS; run a command")
		}
		get.nothingLike(map[string]string{"host": "the instance itself is asked"})
	}
	if from.has("sleep") {
		wait := from.sub("sleep")
		hook.Sleep = wait.duration("seconds", "")
		wait.nothingLike(nil)
	}
	from.kept("", "%s", became)
	from.nothingLike(map[string]string{"tcpSocket": "write exec, httpGet or sleep"})
	if *hook == (spec.Hook{}) {
		return nil
	}
	return hook
}

// get takes a request by HTTP.
func (it *pod) get(from *fields, became string) *spec.HTTPProbe {
	number, at := it.portOf(from), from.text("path", became+".http.path")
	headers := map[string]string{}
	for _, header := range from.each("httpHeaders") {
		headers[header.text("name", "")] = header.text("value", "")
		header.kept("", "%s.http.headers", became)
		header.nothingLike(nil)
	}
	if len(headers) == 0 {
		headers = nil
	}
	if at != "" && !strings.HasPrefix(at, "/") {
		at = "/" + at
	}
	return &spec.HTTPProbe{Port: number, Path: at, Headers: headers}
}

// hooks takes what a Compose service has done when it has started, and before it ends.
func (conv *compose) hooks(from *fields, svc *spec.ServiceSpec) {
	if svc.PostStart = from.commandHook("post_start", "after the start"); svc.PostStart != nil {
		from.approx("post_start", "postStart; the container is not ready before, and is ended if it fails")
	}
	if svc.PreStop = from.commandHook("pre_stop", "before the end"); svc.PreStop != nil {
		from.kept("pre_stop", "preStop")
	}
}

// commandHook takes a list of commands, which may have one.
func (f *fields) commandHook(key, when string) (out *spec.Hook) {
	for i, hook := range f.each(key) {
		command := hook.texts("command", "")
		for _, key := range []string{"user", "privileged", "working_dir", "environment"} {
			if v, ok := hook.take(key); ok && !empty(v) && v != false {
				hook.refuse(key, "a command %s runs as the container does", when)
			}
		}
		switch {
		case i > 0:
			hook.refuse("", "there is one command %s: write a script", when)
		case len(command) == 0:
			hook.refuse("command", "there is none")
		default:
			out = &spec.Hook{Exec: &spec.ExecProbe{Command: command}}
		}
		hook.nothingLike(nil)
	}
	return out
}
