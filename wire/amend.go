package wire

import (
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// Amendment is what a site was changed to while the root was away: an item of its observed set, for each application. It tells
// what the site has, not what was done, so that a root that reads it twice does the same as one that reads it once; services
// that were left alone are not in it. The root answers with Amended.
type Amendment struct {
	App      skerry.AppKey     `json:"app" cbor:"1,keyasint"`
	Seq      uint64            `json:"seq" cbor:"2,keyasint"`      // higher after each time alone
	Base     skerry.Generation `json:"base" cbor:"3,keyasint"`     // the root's generation that was changed
	Author   string            `json:"author" cbor:"4,keyasint"`   // of the last change
	At       time.Time         `json:"at" cbor:"5,keyasint"`       // of the last change
	Services []AmendedService  `json:"services" cbor:"6,keyasint"` // those that differ
	Digests  map[string]string `json:"digests,omitempty" cbor:"7,keyasint,omitempty"`
	Deleted  bool              `json:"deleted,omitempty" cbor:"8,keyasint,omitempty"` // the application, as far as it was there
}

// AmendedService is a service as the site has it now.
type AmendedService struct {
	Name      string            `json:"name" cbor:"1,keyasint"`
	Replicas  int               `json:"replicas" cbor:"2,keyasint"`                 // at this site
	Spec      *spec.ServiceSpec `json:"spec,omitempty" cbor:"3,keyasint,omitempty"` // nil: as the root has it
	Before    int               `json:"before" cbor:"5,keyasint"`                   // replicas at this site before
	Instances []AmendedInstance `json:"instances,omitempty" cbor:"4,keyasint,omitempty"`
}

// AmendedInstance is an instance that the site has.
type AmendedInstance struct {
	ID       skerry.InstanceID `json:"id" cbor:"1,keyasint"`
	Ordinal  int               `json:"ordinal,omitempty" cbor:"2,keyasint,omitempty"`
	Revision string            `json:"revision" cbor:"3,keyasint"`
	Fence    skerry.Fence      `json:"fence" cbor:"4,keyasint"`
}

// Amended is the root's answer, an item of the site's desired set. With it come assignments of all that the site is to keep.
type Amended struct {
	App     skerry.AppKey     `json:"app" cbor:"1,keyasint"`
	Seq     uint64            `json:"seq" cbor:"2,keyasint"`
	Adopted skerry.Generation `json:"adopted,omitempty" cbor:"3,keyasint,omitempty"` // the new generation; 0: it was not adopted
	Why     string            `json:"why,omitempty" cbor:"4,keyasint,omitempty"`
}

// Keys of these items.
const (
	prefixAmendment = "amend/"
	prefixAmended   = "amended/"
)

// AmendmentKey is the key of an Amendment in a site's observed set, AmendedKey that of its answer.
func AmendmentKey(k skerry.AppKey) string { return prefixAmendment + k.String() }
func AmendedKey(k skerry.AppKey) string   { return prefixAmended + k.String() }

// ParseAmendmentKey reads an AmendmentKey, ParseAmendedKey an AmendedKey.
func ParseAmendmentKey(key string) (skerry.AppKey, bool) { return parseAppItem(key, prefixAmendment) }
func ParseAmendedKey(key string) (skerry.AppKey, bool)   { return parseAppItem(key, prefixAmended) }

func parseAppItem(key, prefix string) (skerry.AppKey, bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok || !strings.Contains(rest, "/") {
		return skerry.AppKey{}, false
	}
	k, err := skerry.ParseAppKey(rest, "")
	return k, err == nil
}

// AmendmentView tells how an application at a site differs from what the root wants.
type AmendmentView struct {
	Since time.Time         `json:"since"`
	Base  skerry.Generation `json:"base" doc:"Generation at the root that the override is based on."`
	Steps []AmendmentStep   `json:"steps" doc:"Changes made, oldest first."`
}

// AmendmentStep is one change at a site.
type AmendmentStep struct {
	At     time.Time `json:"at"`
	Author string    `json:"author,omitempty"`
	Text   string    `json:"text"`
}
