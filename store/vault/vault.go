// Package vault seals what secrets hold for one key, by HPKE (RFC 9180: X25519, HKDF-SHA256, ChaCha20-Poly1305), and keeps that
// key. It knows no tiers, stores or links. The servers of the roles import it, and internal/node.
package vault

import (
	"bytes"
	"crypto/hpke"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"skerry.dev/skerry/spec"
)

// A sealed secret is: magic, the name of the key, what HPKE makes of it (its encapsulated key, then the ciphertext). The context
// binds what is sealed to the secret, its version and the key, so that none can be passed off as another.
const (
	magic   = "SKS1"
	keyName = 8 // bytes of the SHA-256 of the public key
	// maxSealed is more than the largest secret takes: JSON has base64 inside.
	maxSealed = spec.MaxSecretBytes*4/3 + 64<<10
)

// ErrOtherKey says that a secret was sealed for another key.
var ErrOtherKey = errors.New("the secret was sealed for another key")

// ErrDamaged says that what is sealed was changed, or is of another secret or version.
var ErrDamaged = errors.New("the sealed secret is damaged, or is not the one that was asked for")

// nameOf names a public key.
func nameOf(public []byte) []byte {
	h := sha256.Sum256(public)
	return h[:keyName]
}

// bound is what a seal holds for, without any way to move the bounds of its parts.
func bound(n spec.SecretName, public []byte) []byte {
	out := []byte("skerry secret 1")
	for _, part := range [][]byte{[]byte(n.Namespace), []byte(n.Name), []byte(n.ID()), public} {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}

func suite() (hpke.KEM, hpke.KDF, hpke.AEAD) {
	return kem(), hpke.HKDFSHA256(), hpke.ChaCha20Poly1305()
}

// Seal makes what only the holder of a key can read. It is another text each time.
func Seal(public []byte, n spec.SecretName, v spec.SecretValue) ([]byte, error) {
	if err := v.Check(); err != nil {
		return nil, err
	}
	k, kdf, aead := suite()
	to, err := k.NewPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("key to seal a secret for: %w", err)
	}
	plain, err := json.Marshal(map[string][]byte(v))
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	sealed, err := hpke.Seal(to, kdf, aead, bound(n, public), plain)
	if err != nil {
		return nil, fmt.Errorf("seal secret %s/%s: %w", n.Namespace, n.Name, err)
	}
	return append(append([]byte(magic), nameOf(public)...), sealed...), nil
}

// Open reads what was sealed for the key. Its errors are ErrOtherKey or ErrDamaged, and tell nothing of what is inside.
func (k *Key) Open(n spec.SecretName, sealed []byte) (spec.SecretValue, error) {
	rest, ok := bytes.CutPrefix(sealed, []byte(magic))
	if !ok || len(rest) < keyName || len(sealed) > maxSealed {
		return nil, ErrDamaged
	}
	if !bytes.Equal(rest[:keyName], nameOf(k.public)) {
		return nil, ErrOtherKey
	}
	_, kdf, aead := suite()
	plain, err := hpke.Open(k.private, kdf, aead, bound(n, k.public), rest[keyName:])
	if err != nil {
		return nil, ErrDamaged
	}
	defer clear(plain)
	var v map[string][]byte
	if json.Unmarshal(plain, &v) != nil || spec.SecretValue(v).Check() != nil {
		return nil, ErrDamaged
	}
	return v, nil
}

// Opens reports whether something was sealed for the key, without opening it.
func (k *Key) Opens(sealed []byte) bool {
	rest, ok := bytes.CutPrefix(sealed, []byte(magic))
	return ok && len(rest) > keyName && bytes.Equal(rest[:keyName], nameOf(k.public))
}

// Rewrap seals for another key what was sealed for this one.
func (k *Key) Rewrap(n spec.SecretName, sealed, public []byte) ([]byte, error) {
	v, err := k.Open(n, sealed)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, b := range v {
			clear(b)
		}
	}()
	return Seal(public, n, v)
}
