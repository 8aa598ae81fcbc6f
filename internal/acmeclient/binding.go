package acmeclient

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// ParseBindingKey reads a key in base64url, or in the other alphabet, with or without padding. Errors do not show it.
func ParseBindingKey(text string) ([]byte, error) {
	text = strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimSpace(text)), "=")
	key, err := base64.RawURLEncoding.DecodeString(text)
	switch {
	case err != nil:
		return nil, errors.New("it is not base64url")
	case len(key) < 16:
		return nil, fmt.Errorf("a key of %d bytes is too short", len(key))
	}
	return key, nil
}
