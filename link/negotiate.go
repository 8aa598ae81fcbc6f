package link

import (
	"fmt"
	"slices"

	"skerry.dev/skerry/wire"
)

// negotiate picks the protocol version and the features that both sides offer, or says what is missing by name.
func negotiate(h *wire.Hello, offered, required []string) (version uint32, features []string, err error) {
	version = min(h.ProtocolMax, wire.ProtocolMax)
	if version < max(h.ProtocolMin, wire.ProtocolMin) {
		older, hint := "the child", "upgrade the child; it may be at most two minor versions behind"
		if h.ProtocolMin > wire.ProtocolMax {
			older, hint = "the parent", "upgrade the parent first, then its children"
		}
		return 0, nil, &wire.Refuse{Code: wire.RefuseProtocol, Hint: hint,
			Reason: fmt.Sprintf("%s is too old: the child (version %s) speaks link protocols %d to %d, the parent %d to %d",
				older, h.Version, h.ProtocolMin, h.ProtocolMax, wire.ProtocolMin, wire.ProtocolMax)}
	}
	for _, f := range h.Required {
		if !slices.Contains(offered, f) {
			return 0, nil, &wire.Refuse{Code: wire.RefuseFeature,
				Reason: fmt.Sprintf("the child needs the feature %q, which this parent does not know", f),
				Hint:   "upgrade the parent first, or switch the feature off at the child"}
		}
	}
	for _, f := range required {
		if !slices.Contains(h.Features, f) {
			return 0, nil, &wire.Refuse{Code: wire.RefuseFeature,
				Reason: fmt.Sprintf("the parent needs the feature %q, which this child (version %s) does not know", f, h.Version),
				Hint:   "upgrade the child"}
		}
	}
	for _, f := range h.Features {
		if slices.Contains(offered, f) && !slices.Contains(features, f) {
			features = append(features, f)
		}
	}
	return version, features, nil
}
