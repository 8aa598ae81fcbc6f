package root

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
)

// FuzzSiteAnswer: whatever a site answers, the user gets workers or an error with a code that fits.
func FuzzSiteAnswer(f *testing.F) {
	f.Add(200, []byte(`{"items":[{"name":"w1","connected":true,"facts":{"capacity":{"cpu":4},"arch":"amd64"}}]}`))
	f.Add(200, []byte(`{"items":null}`))
	f.Add(200, []byte(`[]`))
	f.Add(403, []byte(`{"code":"not-granted","detail":"it does not grant","hint":"grant it"}`))
	f.Add(401, []byte(`{"code":"unauthorized","detail":"log in"}`))
	f.Add(500, []byte(`{"code":"internal","detail":"panic"}`))
	f.Add(302, []byte(``))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var list struct {
			Items []view.WorkerView `json:"items"`
		}
		err := readSite("harbour", &http.Response{StatusCode: status, Status: "x", Body: io.NopCloser(bytes.NewReader(body))}, &list)
		if err == nil {
			return
		}
		own := new(skerry.Error)
		if !errors.As(err, &own) || own.Code.HTTPStatus() >= 500 && own.Code.HTTPStatus() != 503 && own.Code.HTTPStatus() != 501 &&
			own.Code.HTTPStatus() != 507 || own.Code == skerry.CodeUnauthorized || !strings.Contains(own.Message, "harbour") {
			t.Errorf("%d %q gives %#v", status, body, err)
		}
	})
}
