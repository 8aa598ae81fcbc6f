package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// JoinToken is what the store keeps of a token: never the secret.
type JoinToken struct {
	ID      string    `json:"id"`
	Tier    wire.Tier `json:"role"`
	Name    string    `json:"name,omitempty"`    // bound to this name; empty: any
	Replace bool      `json:"replace,omitempty"` // may take the bound name from another key
	Hash    string    `json:"hash"`              // SHA-256 of the secret
	By      string    `json:"by,omitempty"`      // who made it
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Used    *TokenUse `json:"used,omitempty"`
}

// TokenUse says who used a token up.
type TokenUse struct {
	At      time.Time `json:"at"`
	Name    string    `json:"name"`
	Key     string    `json:"key"`
	Machine string    `json:"machine"`
}

// tokenText is a token as people carry it: skt1.<role>.<id>.<secret>.<pin>. The pin is that of the site's CA.
type tokenText struct {
	tier            wire.Tier
	id, secret, pin string
}

func (t tokenText) String() string {
	return strings.Join([]string{"skt1", string(t.tier), t.id, t.secret, t.pin}, ".")
}

// maxToken bounds what is looked at.
const maxToken = 256

func parseToken(s string) (tokenText, error) {
	malformed := func(why string) (tokenText, error) {
		return tokenText{}, &wire.Refuse{Code: wire.RefuseMalformed, Reason: "this is not a join token: " + why,
			Hint: "copy the whole line that `skerry token create` printed; it begins with skt1."}
	}
	s = strings.TrimSpace(s)
	if len(s) > maxToken {
		return malformed("it is too long")
	}
	p := strings.Split(s, ".")
	if p[0] != "skt1" {
		return malformed("it does not begin with skt1")
	}
	if len(p) != 5 {
		return malformed(fmt.Sprintf("it has %d parts instead of 5", len(p)))
	}
	t := tokenText{wire.Tier(p[1]), p[2], p[3], p[4]}
	if t.tier.Parent() == "" {
		return malformed(fmt.Sprintf("its role is %q instead of cluster or worker", p[1]))
	}
	for _, f := range []struct {
		name, text string
		bytes      int
	}{{"id", t.id, 5}, {"secret", t.secret, 20}, {"pin", t.pin, 20}} {
		b, err := base32Lower.DecodeString(f.text)
		if err != nil || len(b) != f.bytes {
			return malformed("its " + f.name + " is cut off or mistyped")
		}
	}
	return t, nil
}

func randomText(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return base32Lower.EncodeToString(b)
}

// hashSecret needs no salt and no slowness: the secret has 160 random bits.
func hashSecret(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(h[:])
}

func (t *JoinToken) matches(secret string) bool {
	return subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hashSecret(secret))) == 1
}

// check says whether a key may use the token at a time under a name, and gives the name. The same key may come again,
// because its first answer may have been lost.
func (t *JoinToken) check(now time.Time, tier wire.Tier, name, key string) (string, error) {
	again := newToken(tier)
	if t.Tier != tier {
		return "", &wire.Refuse{Code: wire.RefuseTokenRole,
			Reason: fmt.Sprintf("the token is for a %s, and a %s wants to join with it", t.Tier, tier), Hint: again}
	}
	if t.Name != "" && name == "" {
		name = t.Name
	}
	if t.Name != "" && t.Name != name {
		return "", &wire.Refuse{Code: wire.RefuseTokenName,
			Reason: fmt.Sprintf("the token is for the %s %q, not for %q", t.Tier, t.Name, name),
			Hint:   "join with --name " + t.Name + ", or " + again}
	}
	if err := skerry.CheckName(name); err != nil {
		return "", &wire.Refuse{Code: wire.RefuseMalformed, Reason: err.Error(), Hint: "choose another with --name"}
	}
	if t.Used != nil {
		if t.Used.Key == key && t.Used.Name == name {
			return name, nil
		}
		return "", t.refuseUsed()
	}
	if madeAhead(now, t.Created) {
		return "", &wire.Refuse{Code: wire.RefuseTokenExpired,
			Reason: "the token was made at " + t.Created.UTC().Format(time.RFC3339) + ", and here it is " + now.UTC().Format(time.RFC3339) +
				": the clock was set back", Hint: again}
	}
	if now.After(t.Expires) {
		return "", &wire.Refuse{Code: wire.RefuseTokenExpired,
			Reason: "the token expired at " + t.Expires.UTC().Format(time.RFC3339), Hint: again}
	}
	return name, nil
}

func (t *JoinToken) refuseUsed() *wire.Refuse {
	return &wire.Refuse{Code: wire.RefuseTokenUsed,
		Reason: fmt.Sprintf("the token was used by %s %q on machine %q at %s; each works once", t.Tier, t.Used.Name, t.Used.Machine,
			t.Used.At.UTC().Format(time.RFC3339)), Hint: newToken(t.Tier)}
}

// newToken is the hint of most refusals.
func newToken(tier wire.Tier) string {
	return "create a new one with `skerry token create --role " + string(tier) + "`"
}
