// Package skerry holds the vocabulary of the orchestrator: nouns, their validation, the life-cycle table, the messages
// between tiers and the error codes. It depends on the standard library only, does no I/O, and every other package may
// import it.
package skerry
