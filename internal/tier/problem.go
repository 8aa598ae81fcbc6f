package tier

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"skerry.dev/skerry"
)

// ProblemType is the media type of problem details, ProblemURN begins their type.
const (
	ProblemType = "application/problem+json"
	ProblemURN  = "urn:skerry:error:"
)

// Title gives a code in words.
func Title(c skerry.Code) string {
	s := strings.ReplaceAll(string(c), "-", " ")
	if s == "" {
		return "Error"
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// ReadProblem gives the error that a response of WriteProblem tells; it does not close the body.
func ReadProblem(res *http.Response) error {
	var p struct {
		Code   skerry.Code `json:"code"`
		Detail string      `json:"detail"`
		Hint   string      `json:"hint"`
		// Of a manifest, or the reasons of a refusal.
		Problems []skerry.Problem `json:"problems"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 64<<10)).Decode(&p); err != nil || p.Detail == "" {
		return skerry.Errorf(skerry.CodeUnavailable, "the answer was %s", res.Status)
	}
	e := skerry.Errorf(p.Code, "%s", p.Detail)
	e.Problems = p.Problems
	if p.Hint != "" {
		e = e.WithHint("%s", p.Hint)
	}
	return e
}

// WriteProblem answers with an error as RFC 9457 problem details.
func WriteProblem(w http.ResponseWriter, e *skerry.Error) {
	body := map[string]any{
		"type": ProblemURN + string(e.Code), "title": Title(e.Code), "status": e.Code.HTTPStatus(), "detail": e.Message, "code": e.Code,
	}
	if e.Hint != "" {
		body["hint"] = e.Hint
	}
	if len(e.Problems) > 0 {
		body["problems"] = e.Problems
	}
	w.Header().Set("Content-Type", ProblemType)
	w.WriteHeader(e.Code.HTTPStatus())
	json.NewEncoder(w).Encode(body)
}
