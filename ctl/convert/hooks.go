package convert

import (
	"strings"

	"skerry.dev/skerry/spec"
)

// lifecycle takes what is done when a container has started, and before it ends.
func (it *pod) lifecycle(from *fields, out *spec.Container) {
	if stop := from.sub("preStop"); stop.m != nil {
		out.PreStop = it.hook(stop)
	}
	if signal := from.text("stopSignal", ""); signal != "" {
		from.refuse("stopSignal", "write stopSignal of the container")
	}
	from.nothingLike(map[string]string{"postStart": "nothing runs when a container has started: write an init container"})
}

func (it *pod) hook(from *fields) *spec.Hook {
	hook := &spec.Hook{}
	if from.has("exec") {
		run := from.sub("exec")
		hook.Exec = &spec.ExecProbe{Command: run.texts("command", "")}
		run.nothingLike(nil)
	}
	if from.has("httpGet") {
		get := from.sub("httpGet")
		hook.HTTP = it.get(get, "preStop")
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
	from.kept("", "preStop")
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

// hooks takes what a Compose service has done before it ends.
func (conv *compose) hooks(from *fields, svc *spec.ServiceSpec) {
	list := from.each("pre_stop")
	for i, hook := range list {
		command := hook.texts("command", "")
		for _, key := range []string{"user", "privileged", "working_dir", "environment"} {
			if v, ok := hook.take(key); ok && !empty(v) && v != false {
				hook.refuse(key, "a command before the end runs as the container does")
			}
		}
		switch {
		case i > 0:
			hook.refuse("", "there is one command before the end: write a script")
		case len(command) == 0:
			hook.refuse("command", "there is none")
		default:
			svc.PreStop = &spec.Hook{Exec: &spec.ExecProbe{Command: command}}
			hook.kept("", "preStop")
		}
		hook.nothingLike(nil)
	}
}
