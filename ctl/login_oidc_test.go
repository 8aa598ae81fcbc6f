package ctl

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
)

// TestLoginAtProvider is the command's part: it shows the address, waits for the browser, and sends what that brings.
func TestLoginAtProvider(t *testing.T) {
	said := "?state=s&code=c"
	mux := http.NewServeMux()
	srv := httptest.NewServer(mux)
	defer srv.Close()
	mux.HandleFunc("POST /v1/auth/oidc", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Redirect string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(auth.OIDCBegun{URL: in.Redirect + said, Bind: "b"}) // as if the provider had nothing to ask
	})
	mux.HandleFunc("POST /v1/auth/oidc/end", func(w http.ResponseWriter, r *http.Request) {
		var in map[string]string
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in["state"] != "s" || in["code"] != "c" || in["bind"] != "b" {
			t.Errorf("got %v, %v", in, err)
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(auth.Tokens{User: "oidc.ada", Access: "a"})
	})
	login := func() (auth.Tokens, error) {
		c, err := api.NewClient(api.ClientOptions{Server: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		r, w := io.Pipe()
		go func() {
			lines := bufio.NewScanner(r)
			for lines.Scan() {
				if at := strings.TrimSpace(lines.Text()); strings.HasPrefix(at, "http://127.0.0.1:") {
					page, _, _ := strings.Cut(at, "?")
					// Others reach the port, too, and end nothing; the browser may ask again.
					for _, at := range []string{page, page + "?state=x&code=x", page + "?error=x", page + "?state=x&error=x", at, at} {
						res, err := http.Get(at)
						if err == nil {
							res.Body.Close()
						}
					}
				}
			}
		}()
		defer w.Close()
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetErr(w)
		return loginAtProvider(cmd, c)
	}
	if tk, err := login(); err != nil || tk.User != "oidc.ada" {
		t.Errorf("%+v, %v", tk, err)
	}
	said = "?state=s&error=access_denied&error_description=go%1b[2Jaway"
	_, err := login()
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeUnauthorized || strings.Contains(e.Message, "\x1b") {
		t.Errorf("got %v", err)
	}
	for _, said = range []string{"?code=c", " \x00"} { // nobody could tell whose answer it is
		if _, err := login(); skerry.AsError(err) == nil || skerry.AsError(err).Code != skerry.CodeUnauthorized {
			t.Errorf("got %v", err)
		}
	}
}
