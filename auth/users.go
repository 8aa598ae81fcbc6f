package auth

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/store"
)

// Records of people in the store, below its prefix.
const (
	recUser        = "name/"    // + name
	recSession     = "session/" // + id
	recAccess      = "access/"  // + id
	recSigningKey  = "key"
	recAudit       = "audit/" // + sequence
	maxUserGrants  = 256
	maxUserAccess  = 64
	maxUserSession = 32
)

// AdminUser is the user that a new store begins with.
const AdminUser = "admin"

// PeopleConfig says whose people they are. Site and Store are needed.
type PeopleConfig struct {
	Site   string
	Store  store.Store
	Prefix string // of the records; default "user/"
	Argon2 Argon2
	Audit  AuditLimits
	// SealKey, of 32 bytes, seals the secrets of one-time codes; nil: nobody may have any.
	SealKey []byte
	// OIDC sets up logins at an identity provider; nil: none. Sessions that began under another setup have ended.
	OIDC *OIDCConfig
	Now  func() time.Time
	Log  *slog.Logger
}

// People are the users of one tier's API, with their sessions and access tokens, all kept in memory and in the store. One
// process at a time may use them on a store. It is safe for concurrent use.
type People struct {
	cfg  PeopleConfig
	key  ed25519.PrivateKey
	hash *hashers
	// firstPassword is the file with the password that the first admin was made with.
	firstPassword string
	decoy         string // hash of a password that nobody has
	limit         loginLimit
	codes         loginLimit // of one-time codes, by user
	basics        basicCache
	audit         auditLog

	change   sync.Mutex // held across the store's commits: people change one after another; ...Locked need it; before mu
	mu       sync.Mutex // held to change the maps, and to read them without change; never across a commit
	users    map[string]*User
	sessions map[string]*session
	access   map[string]*accessToken
}

// User is a person or a program that may log in.
type User struct {
	Name     string    `json:"name"`
	Grants   []Grant   `json:"grants"`
	Disabled bool      `json:"disabled,omitempty" doc:"Whether login is disabled."`
	Created  time.Time `json:"created"`
	By       string    `json:"by,omitempty" doc:"User who created it."`
	TOTP     bool      `json:"totp,omitempty" doc:"Logins also ask for a one-time code."`
	Outside  string    `json:"outside,omitempty" doc:"Identity provider, and what it calls the user, who logs in there alone."`
	Hash     string    `json:"-"`
	totp     *totp     // nil: none, and none begun
}

// userRecord is a User as stored.
type userRecord struct {
	User
	Hash    string `json:"hash"`
	OneTime *totp  `json:"oneTime,omitempty"`
}

// HasSealed reports whether a record is of a user whose one-time codes are sealed (PeopleConfig.SealKey).
func HasSealed(key string, value []byte) bool {
	var r userRecord
	return strings.HasPrefix(key, peopleRecords) && json.Unmarshal(value, &r) == nil && r.OneTime != nil
}

// Opens reports whether a key opens what is sealed in a record for which HasSealed is true.
func Opens(sealKey, value []byte) bool {
	var r userRecord
	if json.Unmarshal(value, &r) != nil || r.OneTime == nil {
		return false
	}
	aead, err := (&People{cfg: PeopleConfig{SealKey: sealKey}}).sealer()
	if err != nil {
		return false
	}
	secret, err := aead.Open(nil, nil, r.OneTime.Sealed, r.bind())
	clear(secret)
	return err == nil
}

// OpenPeople reads the people from the store.
func OpenPeople(ctx context.Context, cfg PeopleConfig) (*People, error) {
	if cfg.Store == nil || cfg.Site == "" {
		return nil, errors.New("open people: a store and a site are needed")
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, peopleRecords)
	cfg.Argon2 = cfg.Argon2.fill()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	p := &People{cfg: cfg, hash: newHashers(), users: map[string]*User{}, sessions: map[string]*session{}, access: map[string]*accessToken{},
		audit: auditLog{turn: make(chan struct{}, 1)},
		codes: loginLimit{most: totpMostWait, forget: totpForget}}
	p.decoy = cfg.Argon2.decoy()
	if err := p.load(ctx); err != nil {
		return nil, fmt.Errorf("open people: %w", err)
	}
	if p.key == nil {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("open people: %w", err)
		}
		absent := int64(0)
		if _, err := cfg.Store.Commit(ctx, []store.Op{{Key: cfg.Prefix + recSigningKey, Value: key.Seed(), Expect: &absent}}); err != nil {
			return nil, fmt.Errorf("keep the key of access tokens: %w", err)
		}
		p.key = key
	}
	return p, nil
}

func (p *People) load(ctx context.Context) error {
	recs, _, err := p.cfg.Store.List(ctx, p.cfg.Prefix)
	if err != nil {
		return err
	}
	setup := p.cfg.OIDC.Setup()
	for _, rec := range recs {
		key := strings.TrimPrefix(rec.Key, p.cfg.Prefix)
		var err error
		switch {
		case key == recSigningKey:
			if len(rec.Value) != ed25519.SeedSize {
				return fmt.Errorf("record %s is damaged", rec.Key)
			}
			p.key = ed25519.NewKeyFromSeed(rec.Value)
		case strings.HasPrefix(key, recUser):
			var u userRecord
			if err = json.Unmarshal(rec.Value, &u); err == nil {
				u.User.Hash, u.User.totp, u.TOTP = u.Hash, u.OneTime, u.OneTime != nil && !u.OneTime.Pending
				p.users[u.Name] = &u.User
			}
		case strings.HasPrefix(key, recSession):
			var s session
			if err = json.Unmarshal(rec.Value, &s); err == nil {
				if s.Setup != "" && s.Setup != setup {
					s.Until = time.Unix(1, 0) // it has ended
				}
				p.sessions[s.ID] = &s // of those that have ended the next login clears the store
			}
		case strings.HasPrefix(key, recAccess):
			var t accessToken
			if err = json.Unmarshal(rec.Value, &t); err == nil {
				p.access[t.ID] = &t
			}
		case strings.HasPrefix(key, recAudit):
			p.audit.found(strings.TrimPrefix(key, recAudit), rec.Value)
		}
		if err != nil {
			return fmt.Errorf("record %s is damaged: %w", rec.Key, err)
		}
	}
	return nil
}

// Bootstrap makes the user admin with a random password when there is no user yet, and writes the password into a file
// that only the owner of the process may read. It reports whether it did. The file goes once the password is another.
func (p *People) Bootstrap(ctx context.Context, file string) (bool, error) {
	p.change.Lock()
	defer p.change.Unlock()
	p.firstPassword = file
	if len(p.users) > 0 {
		return false, nil
	}
	password := randomText(15)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return false, fmt.Errorf("first user: %w", err)
	}
	// The file comes first: a user whose password nobody knows would lock everybody out.
	if err := files.Replace(file, []byte(password+"\n"), 0o600); err != nil {
		return false, fmt.Errorf("first user: %w", err)
	}
	u := &User{Name: AdminUser, Grants: []Grant{{RoleAdmin, Any, Any}}, Created: p.cfg.Now(), Hash: p.cfg.Argon2.hash(password)}
	if err := p.putUserLocked(ctx, u); err != nil {
		return false, fmt.Errorf("first user: %w", err)
	}
	return true, nil
}

func (p *People) putUserLocked(ctx context.Context, u *User, also ...store.Op) error {
	op, err := p.op(recUser+u.Name, userRecord{*u, u.Hash, u.totp})
	if err != nil {
		return err
	}
	if _, err := p.cfg.Store.Commit(ctx, append(also, op)); err != nil {
		return fmt.Errorf("keep user %s: %w", u.Name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.users[u.Name]; u.Name == AdminUser && p.firstPassword != "" && (old == nil || old.Hash != u.Hash) && len(p.users) > 0 {
		if err := os.Remove(p.firstPassword); err != nil && !errors.Is(err, fs.ErrNotExist) {
			p.cfg.Log.Warn("the file with the first admin's password could not be removed; it no longer works", "path", p.firstPassword, "err", err)
		}
	}
	p.users[u.Name] = u
	return nil
}

func (p *People) op(key string, value any) (store.Op, error) {
	b, err := json.Marshal(value)
	return store.Op{Key: p.cfg.Prefix + key, Value: b}, err
}

// NewUser asks for a user.
type NewUser struct {
	Name     string
	Password string // at least 10 characters
	Grants   []Grant
	By       string
}

// CreateUser makes a user.
func (p *People) CreateUser(ctx context.Context, n NewUser) (User, error) {
	if err := skerry.CheckName(n.Name); err != nil {
		return User{}, skerry.Errorf(skerry.CodeInvalid, "name: %w", err)
	}
	if err := checkPassword(n.Password); err != nil {
		return User{}, err
	}
	if err := checkGrants(n.Grants); err != nil {
		return User{}, err
	}
	var hash string
	if err := p.hash.do(ctx, ownSource, func() { hash = p.cfg.Argon2.hash(n.Password) }); err != nil {
		return User{}, err
	}
	p.change.Lock()
	defer p.change.Unlock()
	if p.users[n.Name] != nil {
		return User{}, skerry.Errorf(skerry.CodeConflict, "user %q exists already", n.Name)
	}
	u := &User{Name: n.Name, Grants: tidy(n.Grants), Created: p.cfg.Now(), By: n.By, Hash: hash}
	if err := p.putUserLocked(ctx, u); err != nil {
		return User{}, err
	}
	return *u, nil
}

func checkGrants(list []Grant) error {
	if len(list) > maxUserGrants {
		return skerry.Errorf(skerry.CodeInvalid, "grants: %d are too many; at most %d are allowed", len(list),
			maxUserGrants).WithHint("use * for all")
	}
	for i, g := range list {
		if err := g.check(); err != nil {
			e := skerry.AsError(err)
			return skerry.Errorf(skerry.CodeInvalid, "grants[%d].%s", i, e.Message).WithHint("%s", e.Hint)
		}
	}
	return nil
}

func tidy(list []Grant) []Grant {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b Grant) int { return cmp.Compare(a.String(), b.String()) })
	out = slices.Compact(out)
	if out == nil {
		out = []Grant{}
	}
	return out
}

func noUser(name string) error {
	return skerry.Errorf(skerry.CodeNotFound, "there is no user %q", name).WithHint("`skerry get users` lists them")
}

// Users lists the users by name.
func (p *People) Users() []User {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]User, 0, len(p.users))
	for _, u := range p.users {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b User) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// User gives one user.
func (p *People) User(name string) (User, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[name]
	if u == nil {
		return User{}, noUser(name)
	}
	return *u, nil
}

// UserChange says what to change; nil leaves a thing as it is.
type UserChange struct {
	Password *string
	Grants   *[]Grant
	Disabled *bool
}

// ChangeUser changes a user. A new password, or being disabled, ends the user's sessions.
func (p *People) ChangeUser(ctx context.Context, name string, c UserChange) (User, error) {
	var hash string
	if c.Password != nil {
		if err := checkPassword(*c.Password); err != nil {
			return User{}, err
		}
		if err := p.hash.do(ctx, ownSource, func() { hash = p.cfg.Argon2.hash(*c.Password) }); err != nil {
			return User{}, err
		}
	}
	if c.Grants != nil {
		if err := checkGrants(*c.Grants); err != nil {
			return User{}, err
		}
	}
	p.change.Lock()
	defer p.change.Unlock()
	old := p.users[name]
	if old == nil {
		return User{}, noUser(name)
	}
	u := *old
	if c.Grants != nil {
		u.Grants = tidy(*c.Grants)
	}
	if c.Disabled != nil {
		u.Disabled = *c.Disabled
	}
	if !u.mayAll() && p.lastAdminLocked(name) {
		return User{}, lastAdmin(name)
	}
	var ops []store.Op
	if hash != "" {
		u.Hash = hash
	}
	ends := hash != "" || u.Disabled
	if u.Outside != "" && (hash != "" || c.Grants != nil) {
		return User{}, skerry.Errorf(skerry.CodeConflict, "the grants of user %s follow from groups at an identity provider", name).
			WithHint("change the groups there, or what --oidc grants to them; or create a local user")
	}
	if ends {
		ops = p.endOpsLocked(name, "")
	}
	if err := p.putUserLocked(ctx, &u, ops...); err != nil {
		return User{}, err
	}
	if ends {
		p.forgetSessionsLocked(name, "")
	}
	if hash != "" { // whoever guessed codes had the old password
		p.codes.clear(name, name)
	}
	return u, nil
}

// mayAll tells whether the user can repair everything, also while an identity provider is away.
func (u *User) mayAll() bool {
	return !u.Disabled && u.Outside == "" && slices.Contains(u.Grants, Grant{RoleAdmin, Any, Any})
}

func (p *People) lastAdminLocked(name string) bool {
	if u := p.users[name]; u == nil || !u.mayAll() {
		return false
	}
	for n, u := range p.users {
		if n != name && u.mayAll() {
			return false
		}
	}
	return true
}

func lastAdmin(name string) error {
	return skerry.Errorf(skerry.CodeConflict, "user %q is the last admin of everything", name).
		WithHint("grant admin:*:* to another user first")
}

// DeleteUser removes a user with all sessions and access tokens.
func (p *People) DeleteUser(ctx context.Context, name string) error {
	p.change.Lock()
	defer p.change.Unlock()
	if p.users[name] == nil {
		return noUser(name)
	}
	if p.lastAdminLocked(name) {
		return lastAdmin(name)
	}
	ops := append(p.endOpsLocked(name, ""), store.Op{Key: p.cfg.Prefix + recUser + name, Delete: true})
	for id, t := range p.access {
		if t.User == name {
			ops = append(ops, store.Op{Key: p.cfg.Prefix + recAccess + id, Delete: true})
		}
	}
	if _, err := p.cfg.Store.Commit(ctx, ops); err != nil {
		return fmt.Errorf("delete user %s: %w", name, err)
	}
	p.forgetSessionsLocked(name, "")
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, t := range p.access {
		if t.User == name {
			delete(p.access, id)
		}
	}
	delete(p.users, name)
	return nil
}
