package auth

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
)

// Lives of what a login gives.
const (
	// AccessLife is how long an access token works. A session that ends takes its access tokens with it at once.
	AccessLife = 15 * time.Minute
	// SessionIdle ends a session that was not refreshed for so long, SessionLife any.
	SessionIdle = 7 * 24 * time.Hour
	SessionLife = 30 * 24 * time.Hour
	// refreshLeeway is how long the refresh token before the newest still gives an access token (and nothing else), because
	// two commands may refresh at the same moment.
	refreshLeeway = 10 * time.Second
	keptOld       = 16
)

// session is one login with the chain of its refresh tokens. Only hashes are kept.
type session struct {
	ID      string    `json:"id"`
	User    string    `json:"user"`
	Hash    string    `json:"hash"` // of the refresh token that works
	Old     []string  `json:"old,omitempty"`
	Addr    string    `json:"addr,omitempty"`
	Created time.Time `json:"created"`
	Rotated time.Time `json:"rotated"`
	Until   time.Time `json:"until,omitzero"`  // nothing: as long as any
	Setup   string    `json:"setup,omitempty"` // of the identity provider where it began
}

// madeAhead reports whether something was made under a clock that was ahead of the present one. It would be good until that time comes
// again, and as long as it may be after that.
func madeAhead(now, made time.Time) bool { return made.Sub(now) > time.Hour }

func (s *session) alive(now time.Time) bool {
	if !s.Until.IsZero() && !now.Before(s.Until) {
		return false
	}
	return now.Sub(s.Rotated) < SessionIdle && now.Sub(s.Created) < SessionLife && !madeAhead(now, s.Created) && !madeAhead(now, s.Rotated)
}

// Tokens are what a login or a refresh gives. Refresh is empty when another command has refreshed a moment ago: the newer
// refresh token is where that command kept it.
type Tokens struct {
	Access  string    `json:"access" doc:"Access token, to be sent as Authorization: Bearer."`
	Expires time.Time `json:"expires" doc:"When the access token expires."`
	Refresh string    `json:"refresh,omitempty" doc:"Refresh token. It can be exchanged once for a new pair."`
	User    string    `json:"user"`
}

type claims struct {
	jwt.RegisteredClaims
	Session string `json:"sid"`
}

func wrongLogin() error {
	return skerry.Errorf(skerry.CodeUnauthorized, "user or password is wrong").WithHint("the first admin's password is in the file admin-password of the data directory")
}

// checkSecret verifies a user's password with the same effort whether or not there is such a user, and gives the hash of it: by the time
// the caller holds change, the password may be another. Failures are counted; that there are none is for the caller to say, who may ask for
// more.
func (p *People) checkSecret(ctx context.Context, user, password, addr string) (hash string, err error) {
	if err := p.limit.check(p.cfg.Now(), user, addr); err != nil {
		return "", err
	}
	busy := p.hash.do(ctx, addr, func() {
		// Again, because others may have failed while this one waited.
		if err = p.limit.check(p.cfg.Now(), user, addr); err != nil {
			return
		}
		p.mu.Lock()
		ok := false
		hash = p.decoy
		if u := p.users[user]; u != nil && len(password) <= maxPassword {
			hash, ok = cmp.Or(u.Hash, p.decoy), !u.Disabled && u.Hash != "" // some log in elsewhere alone
		}
		p.mu.Unlock()
		if len(password) > maxPassword {
			password = ""
		}
		if !verifyPassword(hash, password) || !ok {
			p.limit.failed(p.cfg.Now(), user, addr)
			err = wrongLogin()
		}
	})
	return hash, cmp.Or(busy, err)
}

// Credentials are what a person logs in with.
type Credentials struct {
	User, Password string
	Code           string // one-time code; needed if the user has enabled them
	Addr           string // where the request came from
}

// Login checks a password, and a one-time code where the user has them, and begins a session.
func (p *People) Login(ctx context.Context, c Credentials) (Tokens, error) {
	hash, err := p.checkSecret(ctx, c.User, c.Password, c.Addr)
	if err != nil {
		return Tokens{}, err
	}
	p.change.Lock()
	defer p.change.Unlock()
	u := p.users[c.User]
	if u == nil || u.Disabled || u.Hash != hash {
		return Tokens{}, wrongLogin()
	}
	if u.TOTP {
		next, err := p.limitedSpend(u, c.Code, c.Addr)
		if err != nil {
			return Tokens{}, err
		}
		// Before the session: a code that gave one must not work again, whatever happens.
		if err := p.putUserLocked(ctx, next); err != nil {
			return Tokens{}, err
		}
	}
	p.limit.passed(c.User, c.Addr)
	return p.beginLocked(ctx, session{User: c.User, Addr: c.Addr})
}

// beginLocked begins a session.
func (p *People) beginLocked(ctx context.Context, next session) (Tokens, error) {
	s, now, secret := &next, p.cfg.Now(), randomText(20)
	s.ID, s.Hash, s.Created, s.Rotated = randomText(10), hashSecret(secret), now, now
	ops := p.tidySessionsLocked(now, s.User)
	op, err := p.op(recSession+s.ID, s)
	if err != nil {
		return Tokens{}, err
	}
	if _, err := p.cfg.Store.Commit(ctx, append(ops, op)); err != nil {
		return Tokens{}, fmt.Errorf("begin a session: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, op := range ops {
		delete(p.sessions, strings.TrimPrefix(op.Key, p.cfg.Prefix+recSession))
	}
	p.sessions[s.ID] = s
	return p.tokens(s, secret)
}

// tidySessionsLocked drops sessions that have ended by themselves, and the oldest when a user has too many.
func (p *People) tidySessionsLocked(now time.Time, user string) []store.Op {
	var mine []*session
	var ops []store.Op
	drop := func(s *session) {
		if len(ops) < store.MaxOps/2 {
			ops = append(ops, store.Op{Key: p.cfg.Prefix + recSession + s.ID, Delete: true})
		}
	}
	for _, s := range p.sessions {
		if !s.alive(now) {
			drop(s)
		} else if s.User == user {
			mine = append(mine, s)
		}
	}
	slices.SortFunc(mine, func(a, b *session) int { return a.Rotated.Compare(b.Rotated) })
	for len(mine) >= maxUserSession {
		drop(mine[0])
		mine = mine[1:]
	}
	return ops
}

func (p *People) tokens(s *session, secret string) (Tokens, error) {
	now := p.cfg.Now()
	t := Tokens{Expires: now.Add(AccessLife).Truncate(time.Second), User: s.User}
	c := claims{jwt.RegisteredClaims{Issuer: p.cfg.Site, Subject: s.User, IssuedAt: jwt.NewNumericDate(now),
		ExpiresAt: jwt.NewNumericDate(t.Expires)}, s.ID}
	var err error
	if t.Access, err = jwt.NewWithClaims(jwt.SigningMethodEdDSA, c).SignedString(p.key); err != nil {
		return Tokens{}, fmt.Errorf("sign an access token: %w", err)
	}
	if secret != "" {
		t.Refresh = "skr1." + s.ID + "." + secret
	}
	return t, nil
}

func endedSession() error {
	return skerry.Errorf(skerry.CodeUnauthorized, "the session has ended").WithHint("log in again with `skerry login`")
}

// Refresh takes a refresh token and gives the next pair. An old one means that somebody else has it too: the session then
// ends for everybody.
func (p *People) Refresh(ctx context.Context, refresh, addr string) (Tokens, error) {
	parts := strings.Split(refresh, ".")
	if len(refresh) > 256 || len(parts) != 3 || parts[0] != "skr1" {
		return Tokens{}, skerry.Errorf(skerry.CodeUnauthorized, "this is not a refresh token").WithHint("log in again with `skerry login`")
	}
	now := p.cfg.Now()
	hash := hashSecret(parts[2])
	p.change.Lock()
	defer p.change.Unlock()
	session := p.sessions[parts[1]]
	if session == nil || !session.alive(now) {
		return Tokens{}, endedSession()
	}
	if u := p.users[session.User]; u == nil || u.Disabled {
		return Tokens{}, endedSession()
	}
	if subtle.ConstantTimeCompare([]byte(hash), []byte(session.Hash)) != 1 {
		i := slices.Index(session.Old, hash)
		if i < 0 {
			return Tokens{}, endedSession()
		}
		if i == len(session.Old)-1 && now.Sub(session.Rotated) < refreshLeeway {
			return p.tokens(session, "")
		}
		p.cfg.Log.Warn("an old refresh token was used; its session is ended", "user", session.User, "addr", addr)
		if err := p.endLocked(ctx, session.User, session.ID); err != nil {
			return Tokens{}, err
		}
		return Tokens{}, skerry.Errorf(skerry.CodeUnauthorized,
			"this refresh token was used before; its session was ended, because somebody may have copied it").
			WithHint("log in again with `skerry login`")
	}
	next := *session
	secret := randomText(20)
	next.Old = append(slices.Clone(session.Old), session.Hash)
	if len(next.Old) > keptOld {
		next.Old = next.Old[len(next.Old)-keptOld:]
	}
	next.Hash, next.Rotated, next.Addr = hashSecret(secret), now, addr
	op, err := p.op(recSession+session.ID, next)
	if err != nil {
		return Tokens{}, err
	}
	if _, err := p.cfg.Store.Commit(ctx, []store.Op{op}); err != nil {
		return Tokens{}, fmt.Errorf("keep the session: %w", err)
	}
	p.mu.Lock()
	p.sessions[session.ID] = &next
	p.mu.Unlock()
	return p.tokens(&next, secret)
}

// Logout ends the principal's session, and with it its access tokens.
func (p *People) Logout(ctx context.Context, who *Principal) error {
	if who.Session == "" {
		return skerry.Errorf(skerry.CodeInvalid, "this was not a login").WithHint("an access token ends with `skerry access-token delete`")
	}
	p.change.Lock()
	defer p.change.Unlock()
	return p.endLocked(ctx, who.User, who.Session)
}

// endOpsLocked gives the writes that end a user's sessions, all but one if keep is given.
func (p *People) endOpsLocked(user, keep string) []store.Op {
	var ops []store.Op
	for id, s := range p.sessions {
		if s.User == user && id != keep {
			ops = append(ops, store.Op{Key: p.cfg.Prefix + recSession + id, Delete: true})
		}
	}
	return ops
}

func (p *People) forgetSessionsLocked(user, keep string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, s := range p.sessions {
		if s.User == user && id != keep {
			delete(p.sessions, id)
		}
	}
}

func (p *People) endLocked(ctx context.Context, user, id string) error {
	if s := p.sessions[id]; s == nil || s.User != user {
		return nil
	}
	if _, err := p.cfg.Store.Commit(ctx, []store.Op{{Key: p.cfg.Prefix + recSession + id, Delete: true}}); err != nil {
		return fmt.Errorf("end the session: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, id)
	return nil
}

// ChangePassword lets a user change the own password. All other sessions end.
func (p *People) ChangePassword(ctx context.Context, who *Principal, old, password, addr string) error {
	if err := checkPassword(password); err != nil {
		return err
	}
	was, err := p.checkOwn(ctx, who, old, addr)
	if err != nil {
		return err
	}
	p.limit.passed(who.User, addr)
	var hash string
	if err := p.hash.do(ctx, addr, func() { hash = p.cfg.Argon2.hash(password) }); err != nil {
		return err
	}
	p.change.Lock()
	defer p.change.Unlock()
	u := p.users[who.User]
	if u == nil {
		return noUser(who.User)
	}
	if u.Hash != was {
		return wrongOwn()
	}
	next := *u
	next.Hash = hash
	if err := p.putUserLocked(ctx, &next, p.endOpsLocked(who.User, who.Session)...); err != nil {
		return err
	}
	p.forgetSessionsLocked(who.User, who.Session)
	return nil
}

// maxBearer bounds what is looked at.
const maxBearer = 4096

func notLoggedIn(why string) error {
	return skerry.Errorf(skerry.CodeUnauthorized, "%s", why).WithHint("log in with `skerry login`, or send an access token as Authorization: Bearer")
}

// Authenticate finds out who holds a bearer token: a login's access token or one made for a machine.
func (p *People) Authenticate(token string) (*Principal, error) {
	if len(token) > maxBearer {
		return nil, notLoggedIn("the token is too long")
	}
	if strings.HasPrefix(token, accessPrefix) {
		return p.byAccessToken(token)
	}
	var c claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return p.key.Public(), nil },
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithIssuer(p.cfg.Site), jwt.WithExpirationRequired(), jwt.WithTimeFunc(p.cfg.Now))
	if errors.Is(err, jwt.ErrTokenExpired) {
		return nil, skerry.Errorf(skerry.CodeUnauthorized, "the access token has expired").WithHint("refresh it, or log in again with `skerry login`")
	}
	if err != nil {
		return nil, notLoggedIn("the token is not valid here")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s, u := p.sessions[c.Session], p.users[c.Subject]
	if s == nil || u == nil || s.User != u.Name || u.Disabled || !s.alive(p.cfg.Now()) {
		return nil, endedSession()
	}
	return &Principal{User: u.Name, Session: s.ID, Grants: u.Grants}, nil
}

// Alive tells whether what a principal came with still holds: the session or the access token, the user, and every grant.
func (p *People) Alive(who *Principal) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[who.User]
	if u == nil || u.Disabled || slices.ContainsFunc(who.Grants, func(g Grant) bool { return !slices.Contains(u.Grants, g) }) {
		return false
	}
	if who.Session != "" {
		s := p.sessions[who.Session]
		return s != nil && s.alive(p.cfg.Now())
	}
	if who.TokenID == "" {
		return true
	}
	t := p.access[who.TokenID]
	return t != nil && t.User == who.User && (t.Expires.IsZero() || p.cfg.Now().Before(t.Expires))
}

// AuthenticateBasic is for clients that know nothing but user and password, such as those of image registries. The
// password may be an access token or a login's bearer token of that user.
func (p *People) AuthenticateBasic(ctx context.Context, user, password, addr string) (*Principal, error) {
	if strings.HasPrefix(password, accessPrefix) || strings.Count(password, ".") == 2 {
		if who, err := p.Authenticate(password); err == nil && (who.User == user || user == "") {
			return who, nil
		} else if strings.HasPrefix(password, accessPrefix) {
			return nil, cmp.Or(err, wrongLogin())
		}
	}
	p.mu.Lock()
	hash := ""
	if u := p.users[user]; u != nil {
		hash = u.Hash
	}
	p.mu.Unlock()
	if !p.basics.knows(p.cfg.Now(), user, password, hash) {
		var err error
		if hash, err = p.checkSecret(ctx, user, password, addr); err != nil {
			return nil, err
		}
		p.basics.keep(p.cfg.Now(), user, password, hash)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[user]
	if u == nil || u.Disabled || u.Hash != hash {
		return nil, wrongLogin()
	}
	if u.TOTP {
		return nil, skerry.Errorf(skerry.CodeUnauthorized, "logins of user %s need a one-time code, which this client cannot send", user).
			WithHint("use an access token in place of the password: `skerry access-token create NAME`")
	}
	p.limit.passed(user, addr)
	return &Principal{User: u.Name, Grants: u.Grants}, nil
}

// basicCache remembers for a while that a password was right, because registry clients send it with every blob. It
// keeps keyed hashes in memory only; the stored hash is a part of each, so that a new password makes it forget the old one.
type basicCache struct {
	mu  sync.Mutex
	key []byte
	m   map[[32]byte]time.Time
}

const (
	basicLife = 2 * time.Minute
	maxBasics = 256
)

func (b *basicCache) sumLocked(user, password, hash string) (out [32]byte) {
	if b.key == nil {
		b.key = make([]byte, 32)
		rand.Read(b.key)
	}
	h := hmac.New(sha256.New, b.key)
	fmt.Fprintf(h, "%d:%s%d:%s%s", len(user), user, len(hash), hash, password)
	h.Sum(out[:0])
	return out
}

func (b *basicCache) knows(now time.Time, user, password, hash string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	until, ok := b.m[b.sumLocked(user, password, hash)]
	return ok && now.Before(until)
}

func (b *basicCache) keep(now time.Time, user, password, hash string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.m == nil || len(b.m) >= maxBasics {
		b.m = map[[32]byte]time.Time{}
	}
	b.m[b.sumLocked(user, password, hash)] = now.Add(basicLife)
}
