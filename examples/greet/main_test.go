package main

import (
	"strings"
	"testing"
)

func TestAnswer(t *testing.T) {
	for _, c := range []struct{ method, path, body, want string }{
		{"GET", "/", "", "Ahoy, whoever you are! Instance i on worker w."},
		{"GET", "/Anne", "", "Ahoy, Anne!"},
		{"POST", "/Anne", "Mary\n", "Ahoy, Mary!"},
	} {
		env := map[string]string{"REQUEST_METHOD": c.method, "PATH_INFO": c.path, "SKERRY_INSTANCE": "i", "SKERRY_WORKER": "w"}
		var out strings.Builder
		if err := answer(func(n string) string { return env[n] }, strings.NewReader(c.body), &out); err != nil {
			t.Fatal(err)
		}
		if head, body, _ := strings.Cut(out.String(), "\n\n"); !strings.HasPrefix(head, "Content-Type: text/plain") || !strings.HasPrefix(body, c.want) {
			t.Errorf("%+v: %q", c, out.String())
		}
	}
}
