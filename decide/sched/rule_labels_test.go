package sched

import (
	"testing"

	"skerry.dev/skerry/spec"
)

func TestLabels(t *testing.T) {
	want := func(m map[string]string) func(*spec.ServiceSpec) {
		return func(s *spec.ServiceSpec) { s.Placement.Labels = m }
	}
	has := func(m map[string]string) func(*Worker) { return func(w *Worker) { w.Labels = m } }
	testRule(t, Labels{}, []ruleCase{
		{name: "none asked for", worker: has(map[string]string{"a": "1"})},
		{name: "has it", spec: want(map[string]string{"a": "1"}), worker: has(map[string]string{"a": "1", "b": "2"})},
		{name: "another value", spec: want(map[string]string{"a": "1"}), worker: has(map[string]string{"a": "2"}), want: "label: it has no label a=1"},
		{name: "the first in order is told", spec: want(map[string]string{"b": "1", "a": "1"}), want: "label: it has no label a=1"},
		{name: "an empty value is a value", spec: want(map[string]string{"a": ""}), worker: has(map[string]string{"b": "1"}), want: "label: it has no label a="},
		{name: "an empty value is there", spec: want(map[string]string{"a": ""}), worker: has(map[string]string{"a": ""})},
	})
}
