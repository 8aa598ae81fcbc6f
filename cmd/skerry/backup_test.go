package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"filippo.io/age"

	"skerry.dev/skerry/cmd/internal/role"
)

// What a role could not finish is not taken for a whole backup, also where it was written to standard output.
func TestBackupIsNotComplete(t *testing.T) {
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	result := ""
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	service := role.NewService(log)
	err = role.StartLocal(service, dir, log, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", completeTrailer)
		io.WriteString(w, "a store")
		w.Header().Set(completeTrailer, result)
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Stop() })
	for _, c := range []struct{ result, failure string }{{"complete", ""}, {"no disk", "no disk"}, {"", "the role ended it"}} {
		result = c.result
		var out bytes.Buffer
		err := backup(t.Context(), dir, "", secret{recipients: []string{key.Recipient().String()}}, &out)
		if c.failure == "" && err != nil || c.failure != "" && (err == nil || !strings.Contains(err.Error(), c.failure)) {
			t.Errorf("with result %q the backup failed by %v", c.result, err)
		}
		text := []byte(nil)
		plain, err := age.Decrypt(&out, key)
		if err == nil {
			text, err = io.ReadAll(plain)
		}
		if whole := err == nil; whole != (c.failure == "") || whole && string(text) != "a store" {
			t.Errorf("with result %q it decrypts to %q, failure %v", c.result, text, err)
		}
	}
}
