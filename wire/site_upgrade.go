package wire

import (
	"strings"
	"unicode"

	"skerry.dev/skerry/spec"
)

// SiteUpgradeKey is the key of the SiteOrder in a site's desired set.
const SiteUpgradeKey = "upgrade"

// SiteOrder has a site upgrade the agents of its workers, one after the other. A site that does not grant that to its root only says so.
type SiteOrder struct {
	Seq    uint64        `json:"seq" cbor:"1,keyasint"`                        // another number is another order
	Name   string        `json:"name" cbor:"2,keyasint"`                       // of the root's upgrade
	Image  string        `json:"image" cbor:"3,keyasint"`                      // pinned by its digest
	Window spec.Duration `json:"window,omitempty" cbor:"4,keyasint,omitempty"` // of each worker's trial, as in AgentOrder
	Steady spec.Duration `json:"steady,omitempty" cbor:"5,keyasint,omitempty"`
	Pause  bool          `json:"pause,omitempty" cbor:"6,keyasint,omitempty"` // no further worker begins
	By     string        `json:"by,omitempty" cbor:"7,keyasint,omitempty"`    // user of the root
}

// SiteUpgrade tells the root how far a site is with a SiteOrder: counts, and no worker's name.
type SiteUpgrade struct {
	Seq      uint64         `json:"seq" cbor:"1,keyasint"` // of the order
	Workers  int            `json:"workers" cbor:"2,keyasint,omitempty" doc:"Workers to be upgraded."`
	Upgraded int            `json:"upgraded" cbor:"3,keyasint,omitempty" doc:"Workers whose new program passed."`
	Away     int            `json:"away,omitempty" cbor:"4,keyasint,omitempty" doc:"Workers that are not in touch."`
	Lost     int            `json:"lost,omitempty" cbor:"5,keyasint,omitempty" doc:"Upgraded workers that got lost."`
	Versions map[string]int `json:"versions,omitempty" cbor:"6,keyasint,omitempty" doc:"Workers by version."`
	Refused  string         `json:"refused,omitempty" cbor:"7,keyasint,omitempty" doc:"Why the site does not do it."`
	Failed   string         `json:"failed,omitempty" cbor:"8,keyasint,omitempty" doc:"Why a worker kept its program."`
}

// maxVersions bounds the versions that a site tells of.
const maxVersions = 16

// Bound cuts what is too long to be kept, and counts that cannot be.
func (u *SiteUpgrade) Bound() {
	for _, n := range []*int{&u.Workers, &u.Upgraded, &u.Away, &u.Lost} {
		*n = min(max(*n, 0), maxSaidCount)
	}
	u.Refused, u.Failed = cut(printed(u.Refused), maxSaidName*2), cut(printed(u.Failed), maxSaidName*2)
	var versions map[string]int
	for version, n := range u.Versions {
		if len(u.Versions) <= maxVersions && len(version) <= maxSaidName && printed(version) == version && n > 0 && n <= maxSaidCount {
			if versions == nil {
				versions = map[string]int{}
			}
			versions[version] = n
		}
	}
	u.Versions = versions
}

// printed replaces what a terminal would act on.
func printed(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}
