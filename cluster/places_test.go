package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	sealing "filippo.io/age"
)

// What is sent away is the snapshot that the site knows, or nothing whole.
func TestEncrypted(t *testing.T) {
	who, err := sealing.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("a snapshot ", 20_000)
	hash := sha256.Sum256([]byte(text))
	read := func(from io.Reader) ([]byte, error) {
		r := encrypted(from, hex.EncodeToString(hash[:]), []sealing.Recipient{who.Recipient()})
		defer r.Close()
		return io.ReadAll(r)
	}
	data, err := read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := sealing.Decrypt(bytes.NewReader(data), who)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(plain); err != nil || string(got) != text {
		t.Errorf("%d bytes come out, want %d, %v", len(got), len(text), err)
	}
	for name, from := range map[string]io.Reader{
		"cut off":    strings.NewReader(text[:len(text)-1]),
		"damaged":    strings.NewReader("A" + text[1:]),
		"broken off": io.MultiReader(strings.NewReader(text), errReader{}),
	} {
		if _, err := read(from); err == nil {
			t.Errorf("%s: it is read to its end", name)
		}
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("broken off") }

// Who may not see the operator's file learns nothing of it.
func TestPlacesOf(t *testing.T) {
	var log bytes.Buffer
	s := &Server{}
	s.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	s.opt.Places = func() (Places, error) { return nil, errors.New("/etc/skerry/places.yaml: others.secretKey is wrong") }
	_, err := placeOf(s, "offsite", "acme")
	if err == nil || strings.Contains(err.Error(), "secretKey") || strings.Contains(err.Error(), "/etc") {
		t.Errorf("it is said: %v", err)
	}
	if !strings.Contains(log.String(), "secretKey is wrong") {
		t.Errorf("the operator reads: %s", log.String())
	}
	s.opt.Places = func() (Places, error) { return Places{"offsite": {Organisations: []string{"shop"}}}, nil }
	if _, err := placeOf(s, "offsite", "acme"); err == nil {
		t.Error("another organisation's place is given")
	}
	if _, err := placeOf(s, "offsite", "shop"); err != nil {
		t.Error(err)
	}
}
