package main

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/parents"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
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

// A backup without the key of the secrets in it would be of no use for them: it is no backup that went well.
func TestBackupNeedsTheKey(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	const secretRecord, plainUser = `secret/default/db sealed`, `user/ada {"name":"ada","hash":"x"}`
	const oneTime = `user/ada {"name":"ada","hash":"x","oneTime":{}}`
	for name, c := range map[string]struct {
		record string
		key    func(path string) error // what is done to it
		fails  string
	}{
		"all there":                    {secretRecord, func(path string) error { return os.WriteFile(path, []byte("key"), 0o600) }, ""},
		"no secrets, and no key":       {plainUser, func(string) error { return nil }, ""},
		"one-time codes, and no key":   {oneTime, func(string) error { return nil }, "give the data directory"},
		"secrets, and no key":          {secretRecord, func(string) error { return nil }, "give the data directory of the role with --data"},
		"a key that cannot be read":    {plainUser, func(path string) error { return os.Mkdir(path, 0o700) }, "secrets.key"},
		"secrets, and none to be read": {secretRecord, func(path string) error { return os.Mkdir(path, 0o700) }, "secrets.key"},
	} {
		dir := t.TempDir()
		st, err := openStore(t.Context(), dir, "")
		key, value, _ := strings.Cut(c.record, " ")
		if err == nil {
			_, err = st.Commit(t.Context(), []store.Op{{Key: key, Value: []byte(value)}})
		}
		if err == nil {
			err = errors.Join(st.Close(), c.key(filepath.Join(dir, vault.KeyFile)))
		}
		if err != nil {
			t.Fatalf("%s: prepare: %v", name, err)
		}
		err = backup(t.Context(), dir, "", secret{recipients: []string{identity.Recipient().String()}}, io.Discard)
		told := fmt.Sprint(err) + skerry.AsError(cmp.Or(err, io.EOF)).Hint
		if (err != nil) != (c.fails != "") || !strings.Contains(told, c.fails) {
			t.Errorf("%s: the backup ends with %v, want an error with %q", name, err, c.fails)
		}
		// The same of a role that runs.
		st, err = openStore(t.Context(), dir, "")
		if err != nil {
			t.Fatalf("%s: open the store: %v", name, err)
		}
		to := httptest.NewRecorder()
		(&parentLocal{dir: dir, store: st}).backup(to, httptest.NewRequest(http.MethodPost, "/backup", nil))
		if got := to.Result().Trailer.Get(completeTrailer); (got == "complete") != (c.fails == "") {
			t.Errorf("%s: the backup of a role that runs ends with %q, want it complete: %v", name, got, c.fails == "")
		}
		st.Close()
	}
}

// The key of another role, in whatever directory --data names, opens nothing of what a store elsewhere has: a backup with it could not be
// used.
func TestBackupTakesNoOtherKey(t *testing.T) {
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	own, other := t.TempDir(), t.TempDir()
	key, err := vault.OpenKey(own)
	if err == nil {
		_, err = vault.OpenKey(other)
	}
	if err != nil {
		t.Fatal(err)
	}
	value := spec.SecretValue{"a": []byte("b")}
	sealed, err := vault.Seal(key.Public(), spec.SecretName{Namespace: "default", Name: "db", Version: "1-x"}, value)
	if err != nil {
		t.Fatal(err)
	}
	lost, err := vault.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	gone, err := vault.Seal(lost.Public(), spec.SecretName{Namespace: "default", Name: "old", Version: "1-x"}, value)
	if err != nil {
		t.Fatal(err)
	}
	record := func(sealed []byte) []byte {
		return fmt.Appendf(nil, `{"namespace":"default","name":"db","versions":[{"number":1,"id":"x","sealed":%q}]}`,
			base64.StdEncoding.EncodeToString(sealed))
	}
	block, err := aes.NewCipher(key.Derive(parents.OneTimeCodes))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	ada := fmt.Appendf(nil, `{"name":"ada","hash":"x","oneTime":{"sealed":%q}}`,
		base64.StdEncoding.EncodeToString(aead.Seal(nil, nil, []byte("secret"), []byte("totp ada"))))
	for name, c := range map[string]struct {
		records []store.Op
		dir     string
		fails   bool
	}{
		"its own":              {[]store.Op{{Key: "secret/default/db", Value: record(sealed)}}, own, false},
		"another's":            {[]store.Op{{Key: "secret/default/db", Value: record(sealed)}}, other, true},
		"its own, and codes":   {[]store.Op{{Key: "user/ada", Value: ada}}, own, false},
		"another's, and codes": {[]store.Op{{Key: "user/ada", Value: ada}}, other, true},
		"nothing is sealed":    {[]store.Op{{Key: "user/ada", Value: []byte(`{"name":"ada","hash":"x"}`)}}, other, false},
		"its own, and a lost secret": {[]store.Op{{Key: "secret/default/db", Value: record(sealed)},
			{Key: "secret/default/old", Value: record(gone)}}, own, false},
	} {
		elsewhere := t.TempDir()
		st, err := openStore(t.Context(), elsewhere, "")
		if err == nil {
			_, err = st.Commit(t.Context(), c.records)
		}
		if err == nil {
			err = st.Close()
		}
		if err != nil {
			t.Fatalf("%s: prepare: %v", name, err)
		}
		err = backup(t.Context(), c.dir, sqliteURL(elsewhere), secret{recipients: []string{identity.Recipient().String()}}, io.Discard)
		if (err != nil) != c.fails || c.fails && !strings.Contains(err.Error(), "opens none") {
			t.Errorf("%s: the backup ends with %v, want a refusal: %v", name, err, c.fails)
		}
	}
}
