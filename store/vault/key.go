package vault

import (
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skerry.dev/skerry/internal/files"
)

// KeyFile is the file of a key in a data directory.
const KeyFile = "secrets.key"

// CheckFile has the name of the key beside it. A bit that flips in a key makes another one, which opens nothing.
const CheckFile = KeyFile + ".check"

// keyHead begins a key's file.
const keyHead = "skerry-secrets-key-1 "

func kem() hpke.KEM { return hpke.DHKEM(ecdh.X25519()) }

// Key opens what was sealed for it. It is safe for concurrent use.
type Key struct {
	private hpke.PrivateKey
	public  []byte
	how     string
}

// NewKey makes a key that is kept nowhere.
func NewKey() (*Key, error) {
	private, err := kem().GenerateKey()
	if err != nil {
		return nil, err
	}
	return &Key{private: private, public: private.PublicKey().Bytes(), how: "memory"}, nil
}

// Stopgap makes a key that lasts as long as the process, in place of one that cannot be opened.
func Stopgap(why error) (*Key, error) {
	k, err := NewKey()
	if err == nil {
		k.how = "memory alone, until the agent ends: " + why.Error()
	}
	return k, err
}

// Name tells keys apart.
func (k *Key) Name() string { return hex.EncodeToString(nameOf(k.public)) }

// Public gives what secrets are sealed for.
func (k *Key) Public() []byte { return k.public }

// Derive gives a key for another purpose, the same for as long as there is this one; nil for none.
func (k *Key) Derive(purpose string) []byte {
	if k == nil {
		return nil
	}
	raw, err := k.private.Bytes()
	if err != nil {
		return nil // which keys that are made or read here can
	}
	defer clear(raw)
	key, _ := hkdf.Key(sha256.New, raw, nil, "skerry "+purpose, sha256.Size) // it fails for lengths alone
	return key
}

// How says what keeps the key: "TPM2" or "key file", and why not better.
func (k *Key) How() string { return k.how }

// String shows nothing of the key.
func (k *Key) String() string { return "(key)" }

// GoString shows nothing of the key.
func (k *Key) GoString() string { return "(key)" }

// OpenKey reads the key of a data directory, or makes it there.
func OpenKey(dir string) (*Key, error) {
	path := filepath.Join(dir, KeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		k, err := NewKey()
		if err != nil {
			return nil, err
		}
		k.how = howFile
		if err := k.write(path); err != nil {
			return k, err
		}
		return k, k.check(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("key of the secrets: %w", err)
	}
	if st, err := os.Stat(path); err == nil && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("key of the secrets: %s may be read by others than its owner; chmod it to 0600", path)
	}
	k, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("key of the secrets: %s: %w", path, err)
	}
	k.how = howFile
	if err := k.check(dir); err != nil {
		return nil, fmt.Errorf("key of the secrets: %s: %w", path, err)
	}
	return k, nil
}

// check compares a key with what is noted beside it, or notes it.
func (k *Key) check(dir string) error {
	path := filepath.Join(dir, CheckFile)
	noted, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		_ = files.Replace(path, []byte(k.Name()+"\n"), 0o600) // on a disk that is full or cannot be written, the next start does it
		return nil
	case err != nil:
		return err
	case strings.TrimSpace(string(noted)) != k.Name():
		return fmt.Errorf("it is damaged, or another key than the one that %s names; put it back from where it was kept, or a backup in its "+
			"place with `skerry restore`; if it was exchanged deliberately, remove %s", CheckFile, path)
	}
	return nil
}

// ReplaceKey puts the file of another key in the place of one.
func ReplaceKey(path string, text []byte) error {
	if err := os.Remove(filepath.Join(filepath.Dir(path), CheckFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return files.Replace(path, text, 0o600)
}

const howFile = "key file"

var errDamaged = errors.New("it is damaged; put it back from where it was kept, or remove it to begin with a new one " +
	"(secrets that were sealed for it are then lost here)")

func parseKey(text string) (*Key, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), keyHead)
	raw, err := base64.StdEncoding.DecodeString(rest)
	if !ok || err != nil {
		return nil, errDamaged
	}
	private, err := kem().NewPrivateKey(raw)
	if err != nil {
		return nil, errDamaged
	}
	return &Key{private: private, public: private.PublicKey().Bytes()}, nil
}

// write keeps the key.
func (k *Key) write(path string) error {
	raw, err := k.private.Bytes()
	if err != nil {
		return err
	}
	if err := ReplaceKey(path, []byte(keyHead+base64.StdEncoding.EncodeToString(raw)+"\n")); err != nil {
		return fmt.Errorf("key of the secrets: %w", err)
	}
	return nil
}
