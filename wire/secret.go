package wire

import (
	"skerry.dev/skerry/spec"
)

// SecretAsk is what a child asks its parent for: one version of a secret that something uses which it was given, sealed for a key of its own.
type SecretAsk struct {
	Secret spec.SecretName `json:"secret"`
	Key    []byte          `json:"key"` // public
}
