package convert

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"skerry.dev/skerry/spec"
)

const wholeMachine = "a parameter of the whole machine, which is the operator's"

// sysctls takes parameters of the kernel by name, and refuses those that are not the instance's own.
func (f *fields) sysctls() map[string]string {
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.m)) {
		value := f.text(name, "")
		if !spec.AllowedSysctl(name) {
			f.refuse(name, wholeMachine)
			continue
		}
		out[name] = value
		f.kept(name, "sysctls")
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// ulimits takes resource limits by name: one number, {soft, hard}, or SOFT:HARD.
func (f *fields) ulimits() map[string]spec.Ulimit {
	out := map[string]spec.Ulimit{}
	for _, name := range slices.Sorted(maps.Keys(f.m)) {
		value, _ := f.take(name)
		soft, hard, ok := ulimit(value)
		switch {
		case !slices.Contains(spec.UlimitNames(), name):
			f.refuse(name, "services may set only %s", strings.Join(spec.UlimitNames(), ", "))
			continue
		case !ok:
			f.refuse(name, "it is not a limit")
			continue
		case soft == hard:
			out[name] = spec.Ulimit{Hard: hard}
		default:
			out[name] = spec.Ulimit{Soft: &soft, Hard: hard}
		}
		f.kept(name, "ulimits")
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func ulimit(value any) (soft, hard int64, ok bool) {
	number := func(v any) (n int64, ok bool) {
		n, err := strconv.ParseInt(strings.TrimSpace(fmt.Sprint(v)), 10, 64)
		return n, err == nil && n >= -1
	}
	if both, isMap := value.(map[string]any); isMap {
		soft, okSoft := number(both["soft"])
		hard, okHard := number(both["hard"])
		return soft, hard, okSoft && okHard && len(both) == 2
	}
	left, right, two := strings.Cut(fmt.Sprint(value), ":")
	if !two {
		right = left
	}
	soft, okSoft := number(left)
	hard, okHard := number(right)
	return soft, hard, okSoft && okHard
}
