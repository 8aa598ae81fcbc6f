package store_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"skerry.dev/skerry/store"
)

// TestHostileBackups: of what somebody makes of a backup, or of nothing, no record is restored, and neither memory nor time is used up.
func TestHostileBackups(t *testing.T) {
	ctx := t.Context()
	src, dst := mustOpen(t, "memory:"), mustOpen(t, "memory:")
	defer src.Close()
	defer dst.Close()
	for n := range 8 {
		if _, err := src.Commit(ctx, []store.Op{{Key: fmt.Sprint("k", n), Value: bytes.Repeat([]byte{byte(n)}, 40<<10)}}); err != nil {
			t.Fatal(err)
		}
	}
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	to := []age.Recipient{}
	for range 19 {
		other, err := age.GenerateX25519Identity()
		if err != nil {
			t.Fatal(err)
		}
		to = append(to, other.Recipient())
	}
	to = append(to, key.Recipient())
	var buf bytes.Buffer
	if err := store.Backup(ctx, src, &buf, nil, to...); err != nil {
		t.Fatal(err)
	}
	whole := buf.Bytes()
	mac := bytes.Index(whole, []byte("\n--- "))
	begins := mac + 5 + bytes.IndexByte(whole[mac+5:], '\n') + 1
	const nonce, chunk = 16, 64<<10 + 16
	head, body := whole[:begins+nonce], whole[begins+nonce:]
	if len(body) < 4*chunk {
		t.Fatalf("%d bytes", len(body))
	}
	text := func(n int) string { return base64.RawStdEncoding.EncodeToString(make([]byte, n)) }
	scrypt := fmt.Sprintf("-> scrypt %s 30\n%s\n", text(16), text(32))
	end := "--- " + text(32) + "\n" + strings.Repeat("x", 100)
	pass, err := store.PassphraseIdentity("correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	const magic = "age-encryption.org/v1\n"
	flood := []byte(magic + strings.Repeat("-> X25519 "+text(32)+"\n"+text(32)+"\n", 1<<19))
	for what, b := range map[string][]byte{
		"pieces exchanged":               slices.Concat(head, body[chunk:2*chunk], body[:chunk], body[2*chunk:]),
		"a piece left out":               slices.Concat(head, body[:chunk], body[2*chunk:]),
		"a piece twice":                  slices.Concat(head, body[:chunk], body),
		"the last piece left out":        slices.Concat(head, body[:len(body)/chunk*chunk]),
		"another one's pieces":           slices.Concat(head[:begins], make([]byte, nonce), body),
		"a recipient left out":           slices.Concat(whole[:len(magic)], whole[len(magic)+bytes.Index(whole[len(magic)+1:], []byte("->"))+1:]),
		"a passphrase of hours":          []byte(magic + scrypt + end),
		"that beside a key":              slices.Concat([]byte(magic+scrypt), whole[len(magic):]),
		"no end of recipients":           flood,
		"a recipient without an end":     []byte(magic + "-> X25519 " + strings.Repeat("A", 32<<20)),
		"a recipient's key without one":  []byte(magic + "-> X25519 " + text(32) + "\n" + strings.Repeat(strings.Repeat("A", 64)+"\n", 1<<19)),
		"nothing":                        nil,
		"the beginning of another thing": []byte("age-encryption.org/v2\n" + end),
	} {
		in := bytes.NewReader(b)
		if err := store.Restore(ctx, dst, in, nil, key, pass); err == nil {
			t.Errorf("%s: it is restored", what)
		}
		if len(b) > 16<<20 && in.Len() < len(b)-16<<20 {
			t.Errorf("%s: %d MiB were read", what, (len(b)-in.Len())>>20)
		}
		if rs, _, err := dst.List(ctx, ""); err != nil || len(rs) > 0 {
			t.Fatalf("%s: %d records, %v", what, len(rs), err)
		}
	}
	if err := store.Restore(ctx, dst, bytes.NewReader(whole), nil, key); err != nil {
		t.Errorf("by the last of twenty keys: %v", err)
	}
}
