package cluster

import (
	"encoding/json"
	"slices"

	"skerry.dev/skerry"
)

// sortedIDs gives the keys in order: what a core does must not depend on the order of a map.
func sortedIDs[V any](m map[skerry.InstanceID]V) []skerry.InstanceID {
	out := make([]skerry.InstanceID, 0, len(m))
	for id := range m {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("records always marshal: " + err.Error())
	}
	return data
}
