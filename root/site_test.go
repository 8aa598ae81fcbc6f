package root

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// TestCostlyAnswers: short entries do not become gigabytes, and an honest answer of ten thousand workers is read.
func TestCostlyAnswers(t *testing.T) {
	read := func(body string) error {
		var list struct {
			Items []view.WorkerView `json:"items"`
		}
		return readSite("harbour", &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}, &list)
	}
	const many = 1 << 21
	for what, body := range map[string]string{
		"workers":          `{"items":[{}` + strings.Repeat(",{}", many) + `]}`,
		"wrong workers":    `{"items":[0` + strings.Repeat(",0", many) + `]}`,
		"workers twice":    `{"items":[{}` + strings.Repeat(",{}", 10000) + `],"items":[{}` + strings.Repeat(",{}", 10000) + `]}`,
		"runtimes":         `{"items":[{"facts":{"runtimes":[{}` + strings.Repeat(",{}", many) + `]}}]}`,
		"labels":           `{"items":[{"facts":{"labels":{"":""` + strings.Repeat(`,"a":""`, many) + `}}}]}`,
		"after odd texts":  `{"items":[{"name":"a\\\"b\\"}` + strings.Repeat(",{}", many) + `]}`,
		"below the closed": `]]]]{"items":[{}` + strings.Repeat(",{}", many) + `]}`,
	} {
		if err := skerry.AsError(read(body)); err == nil || err.Code != skerry.CodeTooLarge || !strings.Contains(err.Message, "harbour") {
			t.Errorf("%s: %v", what, err)
		}
	}
	worker := view.WorkerView{Name: "w,[{", Facts: &wire.WorkerFacts{Arch: "amd64", Labels: map[string]string{"a": "b", "c": "d,,,,"},
		Runtimes: slices.Repeat([]wire.RuntimeReport{{Name: "oci", Abilities: []string{"a", "b", "c"}}}, 6)}}
	data, err := json.Marshal(map[string]any{"items": slices.Repeat([]view.WorkerView{worker}, 10000)})
	if err != nil {
		t.Fatal(err)
	}
	if err := read(string(data)); err != nil {
		t.Errorf("ten thousand workers: %v", err)
	}
}

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
