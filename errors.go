package skerry

import (
	"errors"
	"fmt"
	"strings"
)

// Code says what kind of error something is. One table maps codes to HTTP status and exit code.
type Code string

// Codes of errors.
const (
	CodeInvalid      Code = "invalid"      // the request is wrong; change it
	CodeUnauthorized Code = "unauthorized" // log in first
	CodeForbidden    Code = "forbidden"    // logged in, but not allowed
	CodeNotGranted   Code = "not-granted"  // a site does not let users of its root do that
	CodeNotFound     Code = "not-found"
	CodeConflict     Code = "conflict"    // exists already, or changed meanwhile
	CodeQuota        Code = "quota"       // the organisation's quota does not allow it
	CodeWrongTier    Code = "wrong-tier"  // the other tier answers this
	CodeUnsupported  Code = "unsupported" // cannot be done here; the message says why
	CodeUnavailable  Code = "unavailable" // try again later
	CodeFull         Code = "full"        // no space left; nothing was changed
	CodeTooLarge     Code = "too-large"
	CodeRateLimited  Code = "rate-limited"
	CodeInternal     Code = "internal" // a bug of ours
)

// codeStatus is the table of HTTP statuses.
var codeStatus = map[Code]int{
	CodeInvalid: 422, CodeUnauthorized: 401, CodeForbidden: 403, CodeNotGranted: 403, CodeNotFound: 404, CodeConflict: 409, CodeQuota: 403,
	CodeWrongTier: 421, CodeUnsupported: 501, CodeUnavailable: 503, CodeFull: 507, CodeTooLarge: 413, CodeRateLimited: 429,
	CodeInternal: 500,
}

// HTTPStatus gives the status for a code; 500 for an unknown one.
func (c Code) HTTPStatus() int {
	if s, ok := codeStatus[c]; ok {
		return s
	}
	return 500
}

// Problem is one thing wrong with one field of a manifest. Path is written as spec.services[0].image.
type Problem struct {
	Path    string `json:"path"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Error is what a user gets: a message, a hint that names the fix, and, for a manifest, every problem found.
type Error struct {
	Code     Code      `json:"code"`
	Message  string    `json:"message"`
	Hint     string    `json:"hint,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	Cause    error     `json:"-"`
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	for _, p := range e.Problems {
		fmt.Fprintf(&b, "\n  %s: %s", p.Path, p.Message)
		if p.Hint != "" {
			fmt.Fprintf(&b, " (%s)", p.Hint)
		}
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Cause }

// Errorf makes an Error of a code.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// WithHint gives the error a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// AsError gives err as an *Error; an unknown error becomes an internal one.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Code: CodeInternal, Message: err.Error(), Cause: err}
}
