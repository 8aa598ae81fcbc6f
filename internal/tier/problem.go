package tier

import (
	"encoding/json"
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
