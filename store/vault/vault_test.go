package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

func newKey(t testing.TB) *Key {
	t.Helper()
	k, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var (
	name  = spec.SecretName{Namespace: "default", Name: "db", Version: "3-8f2a91c0"}
	value = spec.SecretValue{"password": []byte("correct horse"), "user": {}}
)

func TestSeal(t *testing.T) {
	mine, other := newKey(t), newKey(t)
	sealed, err := Seal(mine.Public(), name, value)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Seal(mine.Public(), name, value)
	if err != nil || bytes.Equal(sealed, again) || bytes.Contains(sealed, []byte("horse")) {
		t.Errorf("sealed twice it is %x and %x, %v", sealed, again, err)
	}
	numbered := name
	numbered.Version = "8f2a91c0" // the number is not known when it is sealed
	for _, n := range []spec.SecretName{name, numbered} {
		if v, err := mine.Open(n, sealed); err != nil || len(v) != 2 || string(v["password"]) != "correct horse" {
			t.Errorf("%v: %d files, %v", n, len(v), err)
		}
	}
	wrapped, err := mine.Rewrap(name, sealed, other.Public())
	if err != nil || !other.Opens(wrapped) || mine.Opens(wrapped) {
		t.Errorf("wrapped for another: %v", err)
	}
	if v, err := other.Open(name, wrapped); err != nil || string(v["password"]) != "correct horse" {
		t.Error(err)
	}
	if _, err := other.Open(name, sealed); !errors.Is(err, ErrOtherKey) {
		t.Errorf("with another key: %v", err)
	}
	forged := append([]byte(magic), nameOf(other.Public())...)
	if _, err := other.Open(name, append(forged, sealed[len(forged):]...)); !errors.Is(err, ErrDamaged) {
		t.Errorf("with another key's name on it: %v", err)
	}
	for _, n := range []spec.SecretName{{Namespace: "other", Name: "db", Version: name.Version}, {Namespace: "default", Name: "dc", Version: name.Version},
		{Namespace: "default", Name: "db", Version: "3-8f2a91c1"}, {Namespace: "defaul", Name: "tdb", Version: name.Version}} {
		if _, err := mine.Open(n, sealed); !errors.Is(err, ErrDamaged) {
			t.Errorf("as %v: %v", n, err)
		}
	}
	for i := range sealed {
		bad := bytes.Clone(sealed)
		bad[i] ^= 1
		if _, err := mine.Open(name, bad); err == nil {
			t.Errorf("byte %d may be changed", i)
		}
		if _, err := mine.Open(name, sealed[:i]); err == nil {
			t.Errorf("it opens after %d bytes", i)
		}
	}
	if _, err := mine.Rewrap(name, sealed, []byte("no key")); err == nil {
		t.Error("it was wrapped for what is no key")
	}
}

func TestKeyFile(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, KeyFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
	again, err := OpenKey(dir)
	if err != nil || !bytes.Equal(again.Public(), first.Public()) {
		t.Fatalf("another key: %v", err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenKey(dir); err == nil || !strings.Contains(err.Error(), "chmod it to 0600") {
		t.Errorf("a key that all may read: %v", err)
	}
	if err := os.WriteFile(path, []byte("junk"), 0o600); err != nil || os.Chmod(path, 0o600) != nil {
		t.Fatal(err)
	}
	if _, err := OpenKey(dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged key: %v", err)
	}
}

// TestNothingShows prints and marshals a value, and what it may be inside of, in every way there is.
// TestFlippedKey flips each bit of a key's file: what opens is the same key, or it is refused with the way out. It would open nothing that
// was sealed for the one before, and nobody would know why.
func TestFlippedKey(t *testing.T) {
	dir := t.TempDir()
	first, err := OpenKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	path, check := filepath.Join(dir, KeyFile), filepath.Join(dir, CheckFile)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(check); err != nil && !os.IsNotExist(err) { // an earlier version wrote none
		t.Fatal(err)
	}
	if _, err := OpenKey(dir); err != nil {
		t.Fatal(err)
	}
	put := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	others := 0
	for bit := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		put(bad)
		switch k, err := OpenKey(dir); {
		case err == nil && !bytes.Equal(k.Public(), first.Public()):
			t.Fatalf("bit %d: another key", bit)
		case err == nil:
		case strings.Contains(err.Error(), CheckFile):
			if others++; !strings.Contains(err.Error(), "skerry restore") {
				t.Fatalf("bit %d: no way out: %v", bit, err)
			}
		case !strings.Contains(err.Error(), "damaged"):
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
	if others < 100 {
		t.Errorf("%d bits make another key; the test shows nothing", others)
	}
	put(good)
	if _, err := OpenKey(dir); err != nil {
		t.Errorf("put back: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if k, err := OpenKey(dir); err != nil || bytes.Equal(k.Public(), first.Public()) { // as before: whoever removes it begins with a new one
		t.Errorf("removed: %v", err)
	}
	if _, err := OpenKey(dir); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

func TestNothingShows(t *testing.T) {
	var log bytes.Buffer
	in := struct {
		V spec.SecretValue
		K *Key
	}{value, newKey(t)}
	out := fmt.Sprintf("%v %+v %#v %s %x %q %d %v %#v", value, value, value, value, value, value, value, in, in)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value, "in", in)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value, "in", in)
	for _, v := range []any{value, in, map[string]any{"v": value}} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		log.Write(data)
	}
	out += log.String()
	for _, leak := range []string{"horse", "636f7272656374", "Y29ycmVjd", "99 111 114"} {
		if strings.Contains(out, leak) {
			t.Errorf("%q shows in %s", leak, out)
		}
	}
	if !strings.Contains(out, "(secret)") {
		t.Error(out)
	}
}

// A key gives the same keys for other purposes whenever it is read, others for each purpose, and shows itself in none.
func TestDerive(t *testing.T) {
	dir := t.TempDir()
	k, err := OpenKey(dir)
	again, err2 := OpenKey(dir)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	a := k.Derive("a")
	raw, _ := k.private.Bytes()
	if len(a) != 32 || !bytes.Equal(a, again.Derive("a")) || bytes.Equal(a, k.Derive("b")) || bytes.Equal(a, newKey(t).Derive("a")) || bytes.Equal(a, raw) || bytes.Equal(a, k.Public()) {
		t.Errorf("%x", a)
	}
	if (*Key)(nil).Derive("a") != nil {
		t.Error("a key without a key")
	}
}

func FuzzOpen(f *testing.F) {
	k := newKey(f)
	good, err := Seal(k.Public(), name, value)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(magic))
	f.Add(append([]byte(magic), nameOf(k.Public())...))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		v, err := k.Open(name, sealed)
		if (err == nil) != bytes.Equal(sealed, good) {
			t.Errorf("%d files, %v", len(v), err)
		}
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrOtherKey) {
			t.Error(err)
		}
	})
}
