package api

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/tier"
)

// failure is a status of an error: the name that its answer has in the OpenAPI document, and what it means.
type failure struct {
	name, means string
}

// failures gives each status that an error may have.
func failures() map[int]failure {
	return map[int]failure{
		http.StatusBadRequest:            {"BadRequest", "The body is missing, or the token of a page is not one of this list."},
		http.StatusUnauthorized:          {"Unauthorized", "There is no login, or it has ended."},
		http.StatusForbidden:             {"Forbidden", "The user may not do this, or it exceeds a quota."},
		http.StatusNotFound:              {"NotFound", "It does not exist, or the user may not know that it does."},
		http.StatusRequestTimeout:        {"RequestTimeout", "The body did not arrive in time."},
		http.StatusConflict:              {"Conflict", "It does not fit what is there now."},
		http.StatusRequestEntityTooLarge: {"TooLarge", "The body, or a site's answer, is too large."},
		http.StatusUnsupportedMediaType:  {"UnsupportedMediaType", "The body is of a type that is not accepted."},
		http.StatusMisdirectedRequest:    {"WrongTier", "Only the other tier can answer this."},
		http.StatusUnprocessableEntity:   {"Invalid", "The request is invalid; problems lists each wrong field."},
		http.StatusTooManyRequests:       {"RateLimited", "There were too many requests; try again later."},
		http.StatusInternalServerError:   {"Internal", "The server failed; its log says why."},
		http.StatusNotImplemented:        {"Unsupported", "This server, or what runs there, cannot do this."},
		http.StatusServiceUnavailable:    {"Unavailable", "It cannot be answered now; try again."},
		http.StatusInsufficientStorage:   {"Full", "No space is left; nothing was changed."},
	}
}

// ownFailures lists the statuses of single operations beside those that follow from their row in the table.
func ownFailures(id string) []int {
	const (
		denied, absent, conflict, large = http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge
		unsupported, unavailable, full  = http.StatusNotImplemented, http.StatusServiceUnavailable, http.StatusInsufficientStorage
		guess                           = http.StatusUnauthorized
	)
	switch id {
	case opLogin, "refresh": // a page of another origin is forbidden to use the cookie
		return []int{guess, denied, full}
	case "begin-oidc":
		return []int{denied, unsupported}
	case "end-oidc":
		return []int{guess, denied, conflict, unsupported}
	case "oidc-callback":
		return []int{guess, denied, http.StatusUnprocessableEntity, conflict, unsupported, unavailable, full}
	case "change-password", "remove-totp", "confirm-totp":
		return []int{denied, conflict}
	case "enrol-totp":
		return []int{denied, conflict, unsupported}
	case "list-access-tokens", "delete-access-token":
		return []int{denied}
	case "create-access-token":
		return []int{denied, absent, conflict}
	case "create-user", "change-user", "delete-user", "create-org", "delete-org", "delete-namespace", "delete-certificate", "delete-secret",
		"undo-secret", "delete-volume", "adopt-orphan", "delete-orphan", "delete-app", "delete-instance", "delete-cluster", "delete-worker",
		"upgrade-worker", "delete-snapshot", "change-upgrade", "delete-upgrade":
		return []int{conflict}
	case "start-upgrade":
		return []int{denied, absent, conflict, unavailable}
	case "create-namespace":
		return []int{absent, conflict}
	case "put-secret":
		return []int{conflict, unsupported}
	case "apply-app", "plan-app":
		return []int{absent, conflict, unsupported}
	case "scale-service", "deploy-app", "change-rollout", "restart-app", "restart-service", "migrate-instance":
		return []int{conflict, unsupported}
	case "list-snapshots", "find-packages":
		return []int{unsupported}
	case "take-snapshot", "import-snapshot", "restore-snapshot", "export-snapshot":
		return []int{conflict, unsupported}
	case "read-logs", "exec", "port-forward", "instance-stats", "instance-metrics":
		return []int{conflict, unsupported}
	case "give-grant", "revoke-grant":
		return []int{unsupported}
	case "ingress-authority", "dashboard":
		return []int{absent}
	case "list-cluster-workers", "get-cluster-worker", "cluster-worker-overlay":
		return []int{absent, conflict, large, unsupported}
	case "drain-cluster-worker", "upgrade-cluster-worker", "hold-cluster-worker":
		return []int{conflict, unsupported}
	}
	return nil
}

// otherTier reports whether an operation that both tiers have may be about something of the other one: an application of the root, or a
// worker that is to join it.
func otherTier(id string) bool {
	return slices.Contains([]string{"apply-app", "change-rollout", "delete-app", "deploy-app", "restart-app", "restart-service",
		"scale-service", "delete-instance", "delete-volume", "create-token"}, id)
}

// failuresOf lists the statuses of an operation's errors: those that follow from its row and its document, and its own. plain: its handler
// checks parameters itself, if it has any.
func failuresOf(row *operation, op *huma.Operation, plain bool) []int {
	out := append(ownFailures(row.ID), http.StatusTooManyRequests, http.StatusInternalServerError)
	if row.Scope != auth.ScopePublic {
		out = append(out, http.StatusUnauthorized)
	}
	if row.Object != objNone {
		out = append(out, http.StatusForbidden)
	}
	if row.At != "" || otherTier(row.ID) {
		out = append(out, http.StatusMisdirectedRequest)
	}
	if strings.Contains(row.Path, "{") && row.Tag != "grants" { // another word is no grant that does not exist, but invalid
		out = append(out, http.StatusNotFound)
	}
	if !plain {
		out = append(out, http.StatusUnprocessableEntity)
	}
	if !plain && (row.Scope != auth.ScopePublic || row.Method != http.MethodGet) {
		out = append(out, http.StatusServiceUnavailable)
	}
	if row.Audit && row.Method != http.MethodGet {
		out = append(out, http.StatusInsufficientStorage)
	}
	if slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.Name == "continue" }) {
		out = append(out, http.StatusBadRequest)
	}
	if op.RequestBody != nil {
		out = append(out, http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge,
			http.StatusUnsupportedMediaType)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// listFailures has the document of an operation list its errors, each by reference to one answer. Clients have known the rest as default.
func listFailures(h *Handler, o *operation, op *huma.Operation, plain bool) {
	for _, status := range failuresOf(o, op, plain) {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Ref: "#/components/responses/" + failures()[status].name}
	}
	if op.Responses["default"] != nil {
		op.Responses["default"].Description = "Any other error, such as one of a proxy."
	}
}

// failureResponses describes each failure once.
func failureResponses(problem *huma.Schema) map[string]*huma.Response {
	out := map[string]*huma.Response{}
	for f := range maps.Values(failures()) {
		out[f.name] = &huma.Response{Description: f.means, Content: map[string]*huma.MediaType{tier.ProblemType: {Schema: problem}}}
	}
	return out
}
