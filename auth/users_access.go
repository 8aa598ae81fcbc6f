package auth

import (
	"cmp"
	"context"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
)

// accessPrefix begins every access token: ska1.ID.SECRET.
const accessPrefix = "ska1."

// AccessToken lets a program act as a user, for long. It can be named, limited to scopes, and taken back.
type AccessToken struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	User    string    `json:"user"`
	Scopes  []Scope   `json:"scopes,omitempty" doc:"Scopes it is limited to. If empty, it has all of the user's scopes."`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires,omitzero" doc:"When it expires. Default: never."`
}

type accessToken struct {
	AccessToken
	Hash string `json:"hash"`
}

// AccessTokenOptions ask for an access token.
type AccessTokenOptions struct {
	Name   string
	TTL    time.Duration // 0: until it is taken back
	Scopes []Scope
}

// CreateAccessToken makes a token for a user and gives its text, which is not kept.
func (p *People) CreateAccessToken(ctx context.Context, user string, o AccessTokenOptions) (string, AccessToken, error) {
	if err := skerry.CheckName(o.Name); err != nil {
		return "", AccessToken{}, skerry.Errorf(skerry.CodeInvalid, "name: %w", err)
	}
	if o.TTL < 0 {
		return "", AccessToken{}, skerry.Errorf(skerry.CodeInvalid, "ttl: %s is negative", o.TTL)
	}
	for _, s := range o.Scopes {
		if !slices.Contains(Scopes(), s) {
			return "", AccessToken{}, skerry.Errorf(skerry.CodeInvalid, "scopes: %q is not a scope", s).WithHint("scopes are %s",
				joinScopes(Scopes()))
		}
	}
	secret, now := randomText(20), p.cfg.Now()
	t := &accessToken{AccessToken{ID: randomText(5), Name: o.Name, User: user, Scopes: o.Scopes, Created: now}, hashSecret(secret)}
	if o.TTL > 0 {
		t.Expires = now.Add(o.TTL)
	}
	p.change.Lock()
	defer p.change.Unlock()
	u := p.users[user]
	if u == nil {
		return "", AccessToken{}, noUser(user)
	}
	if u.Outside != "" { // nobody would take it back when they leave
		return "", AccessToken{}, skerry.Errorf(skerry.CodeForbidden, "user %s logs in at an identity provider, and has no access tokens", user).
			WithHint("an admin creates a local user for a program")
	}
	n := 0
	for _, old := range p.access {
		if old.User != user {
			continue
		}
		if n++; old.Name == o.Name {
			return "", AccessToken{}, skerry.Errorf(skerry.CodeConflict, "user %s has an access token %q already", user,
				o.Name).WithHint("delete it first, or choose another name")
		}
	}
	if n >= maxUserAccess {
		return "", AccessToken{}, skerry.Errorf(skerry.CodeConflict, "user %s has %d access tokens", user,
			n).WithHint("delete those that are not used")
	}
	op, err := p.op(recAccess+t.ID, t)
	if err != nil {
		return "", AccessToken{}, err
	}
	if _, err := p.cfg.Store.Commit(ctx, []store.Op{op}); err != nil {
		return "", AccessToken{}, fmt.Errorf("keep access token: %w", err)
	}
	p.mu.Lock()
	p.access[t.ID] = t
	p.mu.Unlock()
	return accessPrefix + t.ID + "." + secret, t.AccessToken, nil
}

func joinScopes(list []Scope) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return strings.Join(out, ", ")
}

// AccessTokens lists a user's tokens, newest first; an empty user means everybody's.
func (p *People) AccessTokens(user string) []AccessToken {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []AccessToken{}
	for _, t := range p.access {
		if user == "" || t.User == user {
			out = append(out, t.AccessToken)
		}
	}
	slices.SortFunc(out, func(a, b AccessToken) int { return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

// DeleteAccessToken takes a token back, by id or name. An empty user means anybody's, by id.
func (p *People) DeleteAccessToken(ctx context.Context, user, id string) error {
	p.change.Lock()
	defer p.change.Unlock()
	for _, t := range p.access {
		if (user == "" || t.User == user) && (t.ID == id || user != "" && t.Name == id) {
			if _, err := p.cfg.Store.Commit(ctx, []store.Op{{Key: p.cfg.Prefix + recAccess + t.ID, Delete: true}}); err != nil {
				return fmt.Errorf("delete access token: %w", err)
			}
			p.mu.Lock()
			delete(p.access, t.ID)
			p.mu.Unlock()
			return nil
		}
	}
	return skerry.Errorf(skerry.CodeNotFound, "there is no access token %q", id).WithHint("`skerry access-token list` shows them")
}

func (p *People) byAccessToken(text string) (*Principal, error) {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return nil, notLoggedIn("the access token is not valid here")
	}
	hash := hashSecret(parts[2])
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.access[parts[1]]
	if t == nil || subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) != 1 {
		return nil, notLoggedIn("the access token is not valid here")
	}
	if !t.Expires.IsZero() && p.cfg.Now().After(t.Expires) {
		return nil, notLoggedIn("the access token has expired")
	}
	u := p.users[t.User]
	if u == nil || u.Disabled {
		return nil, notLoggedIn("the access token's user may not log in")
	}
	return &Principal{User: u.Name, Token: t.Name, TokenID: t.ID, Grants: u.Grants, Only: t.Scopes}, nil
}
