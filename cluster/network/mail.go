package network

import (
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"slices"

	"golang.org/x/crypto/chacha20poly1305"

	"skerry.dev/skerry/wire"
)

// Mail seals what two clusters write to each other, so that the root, which carries it, can neither read nor change it.
// Both derive the keys from their X25519 keys; the root introduces the public ones.
type Mail struct {
	name    string // this site
	private *ecdh.PrivateKey
}

// NewMail makes the site's end of a secret that lasts as long as the site.
func NewMail(secret []byte, name string) Mail {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("site key"))
	k, err := ecdh.X25519().NewPrivateKey(mac.Sum(nil))
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	return Mail{name, k}
}

// Public is the key that other sites are told.
func (m Mail) Public() (key [32]byte) {
	copy(key[:], m.private.PublicKey().Bytes())
	return key
}

// Shared derives a key that only this cluster and another one have. It returns false for nil, a site that nobody
// introduced, and for a public key of low order.
func (m Mail) Shared(with *wire.SiteInfo, label string) (key [32]byte, ok bool) {
	if with == nil {
		return key, false
	}
	pub, err := ecdh.X25519().NewPublicKey(with.Key[:])
	if err != nil {
		return key, false
	}
	secret, err := m.private.ECDH(pub)
	if err != nil {
		return key, false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("skerry sites " + label))
	return [32]byte(mac.Sum(nil)), true
}

// Seal writes mail. The nonce is a MAC of the plaintext (as in SIV), so that the same mail is the same item.
func (m Mail) Seal(to *wire.SiteInfo, topic string, plain []byte) ([]byte, bool) {
	if to == nil {
		return nil, false
	}
	key, ok := m.Shared(to, "mail "+m.name+">"+string(to.Name))
	if !ok {
		return nil, false
	}
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic(err)
	}
	mac := hmac.New(sha256.New, key[:])
	fmt.Fprintf(mac, "%s\x00", topic)
	mac.Write(plain)
	nonce := mac.Sum(nil)[:chacha20poly1305.NonceSizeX]
	return aead.Seal(slices.Clone(nonce), nonce, plain, []byte(topic)), true
}

// Open reads mail.
func (m Mail) Open(from *wire.SiteInfo, topic string, sealed []byte) ([]byte, error) {
	if from == nil || len(sealed) < chacha20poly1305.NonceSizeX {
		return nil, fmt.Errorf("mail about %s cannot be read yet", topic)
	}
	key, ok := m.Shared(from, "mail "+string(from.Name)+">"+m.name)
	if !ok {
		return nil, fmt.Errorf("mail of site %s cannot be read: its key is none", from.Name)
	}
	aead, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		panic(err)
	}
	plain, err := aead.Open(nil, sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:], []byte(topic))
	if err != nil {
		return nil, fmt.Errorf("mail of site %s about %s: %w", from.Name, topic, err)
	}
	return plain, nil
}
