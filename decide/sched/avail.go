package sched

import (
	"slices"

	"skerry.dev/skerry/spec"
)

// amounts hold what is left of each resource on each worker, a column for each resource: a decision mostly looks at two of them.
type amounts [spec.NumResources][]int64

func makeAmounts(size int) (a amounts) {
	for i := range a {
		a[i] = make([]int64, size)
	}
	return a
}

// grow adds a slot.
func (a *amounts) grow() {
	for i := range a {
		a[i] = append(a[i], 0)
	}
}

func (a *amounts) of(n int) (v spec.ResourceVector) {
	for i := range a {
		v[i] = a[i][n]
	}
	return v
}

func (a *amounts) set(n int, v spec.ResourceVector) {
	for i := range a {
		a[i][n] = v[i]
	}
}

func (a *amounts) clone() (out amounts) {
	for i := range a {
		out[i] = slices.Clone(a[i])
	}
	return out
}
