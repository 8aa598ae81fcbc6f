package tier

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/vault"
)

// handled has a handler answer without a network.
type handled struct{ http.Handler }

func (h handled) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestSecretsAreForPeers: who comes by no link gets nothing, and what is answered must open with the key that was named.
func TestSecretsAreForPeers(t *testing.T) {
	mine, other := newKey(t), newKey(t)
	n := spec.SecretName{Namespace: "default", Name: "db", Version: "1-a"}
	find := func(context.Context, string, spec.SecretName) ([]byte, error) {
		return vault.Seal(mine.Public(), n, spec.SecretValue{"password": []byte("correct horse")})
	}
	if _, err := AskSecret(t.Context(), handled{SecretHandler(mine, find)}, other, n); err == nil || skerry.AsError(err).Code != skerry.CodeUnsupported {
		t.Errorf("without a link: %v", err)
	}
	for name, answer := range map[string][]byte{"nothing": nil, "junk": bytes.Repeat([]byte("x"), 100), "sealed for another": must(find(t.Context(), "", n))} {
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(answer) })
		if _, err := AskSecret(t.Context(), handled{h}, other, n); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func newKey(t testing.TB) *vault.Key {
	t.Helper()
	k, err := vault.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// FuzzSecretAsk reads what a child asks: no panic, and no key is sealed for that is none.
func FuzzSecretAsk(f *testing.F) {
	f.Add(`{"secret":{"namespace":"default","name":"db","version":"1-a"},"key":"AAAA"}`)
	f.Add(`{"secret":null,"key":[1,2]}`)
	f.Fuzz(func(t *testing.T, s string) {
		ask, err := readSecretAsk(strings.NewReader(s))
		if err != nil {
			if e := skerry.AsError(err); e.Code != skerry.CodeInvalid {
				t.Error(err)
			}
			return
		}
		if out, err := vault.Seal(ask.Key, ask.Secret, spec.SecretValue{"x": []byte("y")}); err == nil && (len(ask.Key) != 32 || len(out) == 0) {
			t.Errorf("sealed for a key of %d bytes", len(ask.Key))
		}
	})
}
