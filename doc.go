// Package skerry holds the words that everything shares: names and keys, units, errors, the life-cycle of instances. It depends on the
// standard library only, does no I/O, and every other package may import it. Manifests are in spec, messages between tiers in wire, what
// the API answers in view.
package skerry
