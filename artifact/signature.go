package artifact

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"

	"skerry.dev/skerry/artifact/imagekey"
	"skerry.dev/skerry/artifact/imageref"
)

// Signatures of images are in the format of cosign: a document ("simple signing") that names the digest of an image,
// signed with ECDSA on P-256 and SHA-256, lies as a layer of an image of its own, under the tag sha256-HEX.sig beside
// the one that it is about.
const (
	mediaTypePayload    = "application/vnd.dev.cosign.simplesigning.v1+json"
	artifactTypeOfSig   = "application/vnd.dev.cosign.artifact.sig.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	payloadType         = "cosign container image signature"
	atomicPayloadType   = "atomic container signature" // that of other tools
)

// Limits of what is read of signatures.
const (
	maxPayload    = 64 << 10
	maxSignatures = 100 // of one image
	maxSignature  = 512 // bytes
)

// payload is the signed document.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// newPayload is the document that says that somebody vouches for an image.
func newPayload(repository string, d digest.Digest) []byte {
	var p payload
	p.Critical.Identity.Reference, p.Critical.Image.Digest, p.Critical.Type = repository, d.String(), payloadType
	return mustJSON(p)
}

// payloadDigest gives the digest that a signed document is about.
func payloadDigest(raw []byte) (digest.Digest, error) {
	var p payload
	if len(raw) > maxPayload {
		return "", fmt.Errorf("%w: a signed document of more than %d bytes", ErrInvalid, maxPayload)
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return "", fmt.Errorf("%w: signed document: %v", ErrInvalid, err)
	}
	if t := p.Critical.Type; t != payloadType && t != atomicPayloadType {
		return "", fmt.Errorf("%w: signed document: type %.100q is not that of an image's signature", ErrInvalid, t)
	}
	d, err := imageref.ParseDigest(p.Critical.Image.Digest)
	if err != nil {
		return "", fmt.Errorf("%w: signed document: %v", ErrInvalid, err)
	}
	return d, nil
}

// sign signs a document.
func sign(key *ecdsa.PrivateKey, document []byte) ([]byte, error) {
	sum := sha256.Sum256(document)
	return ecdsa.SignASN1(rand.Reader, key, sum[:])
}

// signedBy reports whether one of the keys signed a document.
func signedBy(keys []*ecdsa.PublicKey, document, signature []byte) bool {
	sum := sha256.Sum256(document)
	for _, k := range keys {
		if ecdsa.VerifyASN1(k, sum[:], signature) {
			return true
		}
	}
	return false
}

// ParsePublicKeys reads public keys in PEM, as cosign and openssl write them: ECDSA on P-256, at least one.
func ParsePublicKeys(data []byte) ([]*ecdsa.PublicKey, error) {
	keys, err := imagekey.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return keys, nil
}

// ErrPassword says that a private key needs another password.
var ErrPassword = errors.New("the password of the private key is not right")

// ParsePrivateKey reads a private key in PEM: that of cosign, which is encrypted, or a plain one of openssl's. ECDSA on P-256.
func ParsePrivateKey(data, password []byte) (*ecdsa.PrivateKey, error) {
	block, rest := pem.Decode(data)
	if block != nil && block.Type == "EC PARAMETERS" { // openssl ecparam writes them before the key
		block, _ = pem.Decode(rest)
	}
	if block == nil {
		return nil, fmt.Errorf("%w: no private key in PEM", ErrInvalid)
	}
	var key any
	var err error
	switch der := block.Bytes; block.Type {
	case "ENCRYPTED SIGSTORE PRIVATE KEY", "ENCRYPTED COSIGN PRIVATE KEY":
		if der, err = decryptKey(der, password); err != nil {
			return nil, err
		}
		key, err = x509.ParsePKCS8PrivateKey(der)
		clear(der)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(der)
	case "EC PRIVATE KEY":
		key, err = x509.ParseECPrivateKey(der)
	default:
		return nil, fmt.Errorf("%w: a block %.50q, and no private key", ErrInvalid, block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: private key: %v", ErrInvalid, err)
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: the private key is not one of ECDSA on P-256", ErrInvalid)
	}
	return private, nil
}

// Encrypted reports whether a private key in PEM needs a password.
func Encrypted(data []byte) bool {
	block, _ := pem.Decode(data)
	return block != nil && (block.Type == "ENCRYPTED SIGSTORE PRIVATE KEY" || block.Type == "ENCRYPTED COSIGN PRIVATE KEY")
}

// sealedKey is how cosign keeps a private key: scrypt makes a key of the password, and NaCl's secretbox opens the rest.
type sealedKey struct {
	KDF struct {
		Name   string `json:"name"`
		Params struct {
			N int `json:"N"`
			R int `json:"r"`
			P int `json:"p"`
		} `json:"params"`
		Salt []byte `json:"salt"`
	} `json:"kdf"`
	Cipher struct {
		Name  string `json:"name"`
		Nonce []byte `json:"nonce"`
	} `json:"cipher"`
	Ciphertext []byte `json:"ciphertext"`
}

// What scrypt may take: 256 MiB at most, and more than what cosign uses.
const (
	maxScryptN = 1 << 18
	maxScryptR = 8
	maxScryptP = 16
)

func decryptKey(data, password []byte) ([]byte, error) {
	var k sealedKey
	if err := json.Unmarshal(data, &k); err != nil {
		return nil, fmt.Errorf("%w: private key: %v", ErrInvalid, err)
	}
	p := k.KDF.Params
	switch {
	case k.KDF.Name != "scrypt" || k.Cipher.Name != "nacl/secretbox":
		return nil, fmt.Errorf("%w: private key: it is encrypted by %.50q and %.50q; scrypt and nacl/secretbox are known", ErrInvalid,
			k.KDF.Name, k.Cipher.Name)
	case p.N > maxScryptN || p.R > maxScryptR || p.P > maxScryptP || p.N < 2 || p.R < 1 || p.P < 1:
		return nil, fmt.Errorf("%w: private key: scrypt with N=%d, r=%d, p=%d is not taken", ErrInvalid, p.N, p.R, p.P)
	case len(k.Cipher.Nonce) != 24:
		return nil, fmt.Errorf("%w: private key: a nonce of %d bytes", ErrInvalid, len(k.Cipher.Nonce))
	}
	derived, err := scrypt.Key(password, k.KDF.Salt, p.N, p.R, p.P, 32)
	if err != nil {
		return nil, fmt.Errorf("%w: private key: %v", ErrInvalid, err)
	}
	defer clear(derived)
	out, ok := secretbox.Open(nil, k.Ciphertext, (*[24]byte)(k.Cipher.Nonce), (*[32]byte)(derived))
	if !ok {
		return nil, ErrPassword
	}
	return out, nil
}
