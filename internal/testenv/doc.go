// Package testenv gives tests what they need of the machine: an own network namespace, and checks that nothing is left
// behind. Only tests import it.
package testenv

// Tests are a package's tests: a *testing.M, or what runs one and does more.
type Tests interface{ Run() int }
