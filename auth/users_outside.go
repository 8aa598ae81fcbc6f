package auth

import (
	"context"
	"fmt"
	"strings"

	"skerry.dev/skerry"
)

// outsidePrefix begins names of users whom an identity provider knows. No local user's name has a dot.
const outsidePrefix = "oidc."

// maxOutside is how long such a name may be, as that of any user.
const maxOutside = 63

// key tells outsiders apart, whatever they are called.
func (w *outsider) key() string { return w.issuer + " " + w.subject }

// names gives how an outsider may be called here: by the name there, or, if that is somebody else's or has other characters, by a hash.
func (w *outsider) names() []string {
	hashed := outsidePrefix + "~" + hashSecret(w.key())[:20] // which nobody can be called there
	plain := outsidePrefix + strings.ToLower(w.name)
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_@+", r))
	}
	if w.name == "" || len(plain) > maxOutside || strings.ContainsFunc(plain[len(outsidePrefix):], odd) {
		return []string{hashed}
	}
	return []string{plain, hashed}
}

// outsiderLocked finds the user of an outsider, or makes one that is not kept yet.
func (p *People) outsiderLocked(w *outsider) (*User, error) {
	for _, u := range p.users {
		if u.Outside == w.key() {
			next := *u
			return &next, nil
		}
	}
	for _, name := range w.names() {
		if p.users[name] == nil {
			return &User{Name: name, Created: p.cfg.Now(), By: w.issuer, Outside: w.key()}, nil
		}
	}
	return nil, skerry.Errorf(skerry.CodeConflict, "there is no name left for %s", w.key())
}

// loginOutside begins a session of somebody whom the provider has vouched for. What they may do here is what their groups say now.
func (p *People) loginOutside(ctx context.Context, w *outsider, addr string) (Tokens, error) {
	p.change.Lock()
	defer p.change.Unlock()
	user, err := p.outsiderLocked(w)
	if err != nil {
		return Tokens{}, err
	}
	if user.Disabled {
		return Tokens{}, skerry.Errorf(skerry.CodeForbidden, "user %s is disabled here", user.Name).
			WithHint("an admin may run `skerry user enable %s`", user.Name)
	}
	known := p.users[user.Name] != nil
	user.Grants = w.grants
	if len(w.grants) > 0 {
		if err := p.putUserLocked(ctx, user); err != nil {
			return Tokens{}, err
		}
		return p.beginLocked(ctx, session{User: user.Name, Addr: addr, Until: p.cfg.Now().Add(oidcSession), Setup: w.setup})
	}
	if known { // who had groups and lost them ends here, with all sessions
		if err := p.putUserLocked(ctx, user, p.endOpsLocked(user.Name, "")...); err != nil {
			return Tokens{}, err
		}
		p.forgetSessionsLocked(user.Name, "")
	}
	e := skerry.Errorf(skerry.CodeForbidden, "%s is in no group of the identity provider that is granted anything here", user.Name).
		WithHint("the operator of this root or cluster grants roles to groups in the file of --oidc; " +
			"whoever keeps the identity provider puts people into groups")
	e.Problems = []skerry.Problem{{Path: "groups", Message: fmt.Sprintf("are %.100q", w.groups[:min(len(w.groups), 8)])}}
	return Tokens{}, e
}
