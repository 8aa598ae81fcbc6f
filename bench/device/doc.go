// Package device measures what each kind of isolation costs on one device: the same programs on the machine itself, in namespaces and
// cgroups made by hand, and in every runtime that passes its self-test, in turn, so that what disturbs the machine disturbs
// all alike. `skerry bench runtime` is its command.
//
//	catalogue of cases ─┐
//	places: bare, … ────┼─> run: round by round, each case in each place ─> samples ─> bench/report
//	root file system ───┘
//
// A case that cannot run is listed with the reason, never estimated. The programs check their own results.
package device
