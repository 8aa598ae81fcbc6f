package tier

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
)

// SecretsPath is where a child asks for secrets over a stream. What it is told is sealed for the key that it names on its own
// authenticated connection, and lies so at rest.
const SecretsPath = "/secrets"

const (
	maxSecretAsk    = 8 << 10
	maxSealedSecret = 1 << 20
)

// FindSecret gives a version of a secret, sealed for the parent's key, if something uses it that the child was given.
type FindSecret func(ctx context.Context, child string, n spec.SecretName) (sealed []byte, err error)

// seal replaces what a secret holds by what the core keeps of it.
func (h *Hub) seal(m *apps.PutSecret) error {
	if h.cfg.Secrets == nil {
		return skerry.Errorf(skerry.CodeUnsupported, "this %s keeps no secrets", h.cfg.Tier)
	}
	if err := errors.Join(skerry.CheckName(m.Name)); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "name of the secret: %s", err)
	}
	if err := m.Value.Check(); err != nil {
		return err
	}
	var id [8]byte
	rand.Read(id[:])
	v := apps.SecretVersion{ID: hex.EncodeToString(id[:]), Files: m.Value.Files(), Size: m.Value.Size()}
	var err error
	v.Sealed, err = vault.Seal(h.cfg.Secrets.Public(), spec.SecretName{Namespace: m.Namespace, Name: m.Name, Version: v.ID}, m.Value)
	m.Value, m.Version = nil, v
	return err
}

// SecretHandler answers children that ask for secrets.
func SecretHandler(key *vault.Key, find FindSecret) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := answerSecret(r, key, find)
		if err != nil {
			WriteProblem(w, skerry.AsError(err))
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(out) // a cut answer does not open
	})
}

func answerSecret(r *http.Request, key *vault.Key, find FindSecret) ([]byte, error) {
	peer := link.PeerFrom(r.Context())
	if key == nil || peer == nil {
		return nil, skerry.Errorf(skerry.CodeUnsupported, "there are no secrets here")
	}
	ask, err := readSecretAsk(r.Body)
	if err != nil {
		return nil, err
	}
	sealed, err := find(r.Context(), peer.Name(), ask.Secret)
	if err != nil {
		return nil, err
	}
	out, err := key.Rewrap(ask.Secret, sealed, ask.Key)
	if errors.Is(err, vault.ErrOtherKey) {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "secret %s was sealed for a key that this machine does not have", ask.Secret.Name).
			WithHint("copy the file %s of the previous leader into the data directory of this machine and remove %s there, or rotate the secret",
				vault.KeyFile, vault.CheckFile)
	}
	return out, err
}

// readSecretAsk reads a child's question.
func readSecretAsk(from io.Reader) (ask wire.SecretAsk, err error) {
	data, err := io.ReadAll(io.LimitReader(from, maxSecretAsk+1))
	if err == nil && len(data) > maxSecretAsk {
		err = errors.New("it is too long")
	}
	if err == nil {
		err = json.Unmarshal(data, &ask)
	}
	if err != nil {
		return ask, skerry.Errorf(skerry.CodeInvalid, "the question for a secret cannot be read: %s", err)
	}
	return ask, nil
}

// AskSecret asks the parent for a version of a secret, sealed for a key. What it gives opens with that key.
func AskSecret(ctx context.Context, parent http.RoundTripper, key *vault.Key, secret spec.SecretName) ([]byte, error) {
	body, err := json.Marshal(wire.SecretAsk{Secret: secret, Key: key.Public()})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://parent"+SecretsPath, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := parent.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, ReadProblem(res)
	}
	sealed, err := io.ReadAll(io.LimitReader(res.Body, maxSealedSecret))
	if err == nil {
		_, err = key.Open(secret, sealed)
	}
	return sealed, err
}
