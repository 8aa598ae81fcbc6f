package tier

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/panics"
)

// laterBeat is how often an answer that is not there yet says that it will be: less than what anybody waits for an answer to begin.
const laterBeat = 10 * time.Second

// laterDrain is how long who sends a body that is refused may take to see that.
const laterDrain = 5 * time.Second

// Later answers with what do gives, however long that takes. One that takes long begins with white space, so that nobody takes the
// connection for dead, and is then of status 200: what went wrong stands in the member error.
func Later(w http.ResponseWriter, r *http.Request, do func(ctx context.Context) (any, error)) {
	laterAt(w, r, laterBeat, do)
}

// laterAt is Later with another beat.
func laterAt(w http.ResponseWriter, r *http.Request, beat time.Duration, do func(ctx context.Context) (any, error)) {
	type result struct {
		value any
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var res result
		defer func() { done <- res }()
		defer panics.Error(&res.err)
		res.value, res.err = do(r.Context())
	}()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	if r.ContentLength != 0 {
		// Otherwise what is left of a body that is still being read is thrown away when the answer begins. A connection of which that was
		// not read to its end is of no more use.
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Connection", "close")
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	begun := false
	for {
		select {
		case <-tick.C:
			if !begun {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusOK)
				begun = true
			}
			_, _ = io.WriteString(w, "\n")
			_ = http.NewResponseController(w).Flush()
		case res := <-done:
			switch {
			case res.err != nil && !begun:
				WriteProblem(w, skerry.AsError(res.err))
			case res.err != nil:
				e := skerry.AsError(res.err)
				_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": e.Code, "detail": e.Message, "hint": e.Hint}})
			default:
				w.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(w).Encode(res.value)
			}
			if res.err != nil && r.ContentLength != 0 {
				// Who is still sending sees the answer only if the connection stays until then.
				_ = http.NewResponseController(w).Flush()
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(laterDrain))
				_, _ = io.Copy(io.Discard, r.Body)
			}
			return
		}
	}
}

// AnswerLost is that an answer did not come whole: what was asked for may have been done all the same.
type AnswerLost struct{ Err error }

func (e *AnswerLost) Error() string { return e.Err.Error() }

func (e *AnswerLost) Unwrap() error { return e.Err }

// ReadLater reads an answer of Later, and closes it. An error that is no AnswerLost is what the other side says.
func ReadLater(res *http.Response, out any) error {
	defer res.Body.Close()
	if res.StatusCode >= 400 {
		return ReadProblem(res)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return &AnswerLost{skerry.Errorf(skerry.CodeUnavailable, "the answer broke off: %v", err)}
	}
	var failed struct {
		Error *struct {
			Code         skerry.Code `json:"code"`
			Detail, Hint string
		} `json:"error"`
	}
	data = bytes.TrimSpace(data)
	if err := json.Unmarshal(data, &failed); err != nil {
		return &AnswerLost{skerry.Errorf(skerry.CodeUnavailable, "the answer cannot be read: %v", err)}
	}
	if e := failed.Error; e != nil {
		own := skerry.Errorf(e.Code, "%s", e.Detail)
		if e.Hint != "" {
			own = own.WithHint("%s", e.Hint)
		}
		return own
	}
	if err := json.Unmarshal(data, out); err != nil {
		return &AnswerLost{skerry.Errorf(skerry.CodeUnavailable, "the answer cannot be read: %v", err)}
	}
	return nil
}
