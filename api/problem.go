package api

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
)

// Problem is how every error is answered: problem details as in RFC 9457, with a hint that names the fix.
type Problem struct {
	Type     string           `json:"type" doc:"urn:skerry:error: followed by the error code."`
	Title    string           `json:"title" doc:"The error code in words."`
	Status   int              `json:"status"`
	Detail   string           `json:"detail" doc:"What went wrong."`
	Hint     string           `json:"hint,omitempty" doc:"How to fix it."`
	Code     skerry.Code      `json:"code"`
	Problems []skerry.Problem `json:"problems,omitempty" doc:"All invalid fields."`
	Request  string           `json:"request,omitempty" doc:"Request ID, as in the server's log."`
}

// Error, GetStatus and ContentType make it an error that huma writes as it is.
func (p *Problem) Error() string             { return p.Detail }
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) ContentType(string) string { return tier.ProblemType }

// known turns errors of the packages below into those that a user can act on.
func known(err error) *skerry.Error {
	var e *skerry.Error
	if errors.As(err, &e) {
		return e
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.Is(err, store.ErrFull):
		return skerry.Errorf(skerry.CodeFull, "the server's disk is full; nothing was changed").WithHint("free some space there")
	case errors.Is(err, store.ErrConflict):
		return skerry.Errorf(skerry.CodeConflict, "it was changed by somebody else at the same time").WithHint("try again")
	case errors.Is(err, store.ErrClosed):
		return skerry.Errorf(skerry.CodeUnavailable, "the server is stopping").WithHint("try again in a moment")
	case errors.As(err, &tooLarge):
		return skerry.Errorf(skerry.CodeTooLarge, "the body is larger than %d bytes", tooLarge.Limit)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return skerry.Errorf(skerry.CodeUnavailable, "the request was not answered in time").WithHint("try again")
	}
	return skerry.AsError(err)
}

// problemOf makes a Problem of an error. A bug of ours says nothing of what is inside; the log does.
func (h *Handler) problemOf(c *call, err error) *Problem {
	e := known(err)
	status := statusOf(err, e.Code)
	if e.Code == skerry.CodeInternal {
		h.opt.Log.Error("request failed", "request", c.id, "operation", c.operation, "err", err)
		e = skerry.Errorf(skerry.CodeInternal, "the server failed to answer").WithHint("see the server's log for request %s", c.id)
	}
	c.code = e.Code
	return &Problem{Type: tier.ProblemURN + string(e.Code), Title: tier.Title(e.Code), Status: status, Detail: e.Message, Hint: e.Hint,
		Code: e.Code, Problems: e.Problems, Request: c.id}
}

// fail answers a request outside of huma.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	h.failStatus(w, r, 0, err)
}

func (h *Handler) failStatus(w http.ResponseWriter, r *http.Request, status int, err error) {
	p := h.problemOf(callOf(r.Context()), err)
	if status != 0 {
		p.Status = status
	}
	w.Header().Set("Content-Type", tier.ProblemType)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="skerry"`)
	}
	if p.Status == http.StatusTooManyRequests && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}

// translate turns the errors that huma finds in a request into problems.
func (h *Handler) translate(ctx huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	problem := skerry.Errorf(skerry.CodeInvalid, "%s", m.Detail)
	switch m.Status {
	case http.StatusRequestEntityTooLarge:
		problem.Code = skerry.CodeTooLarge
	case http.StatusInternalServerError:
		problem.Code = skerry.CodeInternal
	case http.StatusRequestTimeout:
		problem.Message, problem.Hint = "the body did not arrive in time", "send it faster, or in one piece"
	}
	unknown := false
	for _, d := range m.Errors {
		p := skerry.Problem{Path: d.Location, Message: d.Message}
		if strings.HasPrefix(d.Message, "unexpected property") || strings.HasPrefix(d.Message, "unknown query parameter") {
			unknown = true
			p.Message, p.Hint = "unknown field", h.suggestField(ctx.Operation(), d.Location)
		}
		if strings.Contains(d.Message, "unknown content type") {
			m.Status = http.StatusUnsupportedMediaType
			p.Hint = "send application/json"
		}
		p.Message = plainType(p.Message)
		problem.Problems = append(problem.Problems, p)
	}
	if problem.Message == "validation failed" {
		problem.Message = "the request is not valid"
	}
	if unknown {
		problem.Hint = "the API is described at /openapi.json"
	}
	p := h.problemOf(callOf(ctx.Context()), problem)
	p.Status = m.Status
	return p, nil
}

// wrongType is how the decoder of JSON refuses a value.
var wrongType = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^json: cannot unmarshal (?:(string|array|object|bool)|number(?: ([^ ]+))?) into Go .* of type ([^ ]+)$`)
})

// plainType says what a value should have been without the words of our programming language.
func plainType(message string) string {
	m := wrongType().FindStringSubmatch(message)
	if m == nil {
		return message
	}
	got := cmp.Or(m[1], m[2], "number")
	switch kind := strings.TrimLeft(m[3], "[]*"); {
	case strings.HasPrefix(m[3], "[]") && m[1] != "":
		return "a list is needed, not " + got
	case strings.HasPrefix(kind, "int") || strings.HasPrefix(kind, "uint"):
		return "a whole number is needed, such as 35, not " + got
	case strings.HasPrefix(kind, "float"):
		return "a number is needed, not " + got
	case kind == "bool":
		return "true or false is needed, not " + got
	}
	return got + " is not a value of this field"
}

// suggestField names the known field that an unknown one was probably meant to be.
func (h *Handler) suggestField(op *huma.Operation, location string) string {
	where, name, _ := strings.Cut(location, ".")
	var knownNames []string
	switch where {
	case "query":
		for _, p := range op.Parameters {
			if p.In == "query" {
				knownNames = append(knownNames, p.Name)
			}
		}
	case "body":
		if op.RequestBody == nil || op.RequestBody.Content["application/json"] == nil {
			return ""
		}
		s := op.RequestBody.Content["application/json"].Schema
		if s != nil && s.Ref != "" {
			s = h.api.OpenAPI().Components.Schemas.SchemaFromRef(s.Ref)
		}
		if s == nil || strings.Contains(name, ".") {
			return ""
		}
		for k := range s.Properties {
			knownNames = append(knownNames, k)
		}
	}
	return spec.Suggest(name, knownNames)
}
