package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
)

// Row is a row of the table of routes, for tests.
type Row = operation

// Operations gives the table of routes.
func (h *Handler) Operations() []Row { return h.operations }

// ParseWatch checks the query of a watch.
func ParseWatch(namespace, app, kinds, accept string) error {
	o, err := parseWatch(&watchIn{Namespace: namespace, App: app, Kinds: kinds, Accept: accept, Encoding: accept})
	if err == nil && len(o.kinds) == 0 {
		panic("a watch of nothing")
	}
	return err
}

// ManifestProblems holds a decoded manifest against its schema in the OpenAPI document.
func (h *Handler) ManifestProblems(v any) (problems []string) {
	var result huma.ValidateResult
	registry := h.document().Components.Schemas
	for _, s := range registry.Map() {
		s.PrecomputeMessages()
	}
	schema := registry.SchemaFromRef(schemasPrefix + manifestSchema)
	huma.Validate(registry, schema, huma.NewPathBuffer([]byte{}, 0), huma.ModeWriteToServer, v, &result)
	for _, err := range result.Errors {
		problems = append(problems, err.Error())
	}
	return problems
}

// Undescribed lists the answers that were given and that the OpenAPI document does not list for their operation. The registry speaks
// another protocol, and what is in no table has no operation.
func (h *Handler) Undescribed() (out []string) {
	byID := map[string]*huma.Operation{}
	for _, o := range h.operations {
		byID[o.ID] = documented(h, &o)
	}
	h.meter.mu.Lock()
	defer h.meter.mu.Unlock()
	for k := range h.meter.requests {
		if k.operation != "registry" && k.operation != "unknown" && byID[k.operation].Responses[strconv.Itoa(k.status)] == nil {
			out = append(out, fmt.Sprintf("%s: %d", k.operation, k.status))
		}
	}
	return out
}

// Nothing is the object of operations that ask a scope of nothing.
const Nothing = objNone

// PageToken, ReadPageToken and PageOf are the parts of paging.
func PageToken(list, key string) string                        { return pageToken(list, key) }
func ReadPageToken(list, token string) (key string, err error) { return readPageToken(list, token) }
func PageOf[T any](list string, limit int, token string, items []T, key func(*T) string) ([]T, string, error) {
	out, err := pageOf(list, PageIn{Limit: limit, Continue: token}, items, key)
	if err != nil {
		return nil, "", err
	}
	return out.Body.Items, out.Body.Continue, nil
}

// Schemas lists the names of the schemas that requests are held against.
func (h *Handler) Schemas() []string {
	return slices.Sorted(maps.Keys(h.api.OpenAPI().Components.Schemas.Map()))
}

// PageBack gives a page of events.
func PageBack(list string, limit int, token string, items []uint64) (page []uint64, next string, err error) {
	answer, err := pageBack(list, limit, token, items, func(n *uint64) uint64 { return *n })
	if err != nil {
		return nil, "", err
	}
	return answer.Body.Items, answer.Body.Continue, nil
}
