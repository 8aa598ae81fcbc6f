package tier

import (
	"encoding/json"
	"net/http"

	"skerry.dev/skerry"
)

// WriteProblem answers with an error as RFC 9457 problem details.
func WriteProblem(w http.ResponseWriter, e *skerry.Error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(e.Code.HTTPStatus())
	json.NewEncoder(w).Encode(map[string]any{
		"type": "urn:skerry:error:" + string(e.Code), "title": string(e.Code), "status": e.Code.HTTPStatus(),
		"detail": e.Message, "hint": e.Hint, "code": e.Code, "problems": e.Problems,
	})
}
