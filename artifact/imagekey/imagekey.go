// Package imagekey reads the public keys that count for signatures of images. It checks no signature, and opens no file.
//
//	-----BEGIN PUBLIC KEY----- ... ─► ECDSA on P-256, one or more
package imagekey

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

// Parse reads public keys in PEM, as cosign and openssl write them: ECDSA on P-256, at least one.
func Parse(data []byte) (keys []*ecdsa.PublicKey, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "PUBLIC KEY" {
			return nil, fmt.Errorf("a block %.50q, and no public key", block.Type)
		}
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("public key: %w", err)
		}
		public, ok := k.(*ecdsa.PublicKey)
		if !ok || public.Curve != elliptic.P256() {
			return nil, errors.New("the public key is not one of ECDSA on P-256")
		}
		keys = append(keys, public)
	}
	if len(keys) == 0 {
		return nil, errors.New("no public key in PEM")
	}
	if len(bytes.TrimSpace(data)) > 0 {
		return nil, errors.New("there is something other than public keys in PEM")
	}
	return keys, nil
}
