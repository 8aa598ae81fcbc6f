package auth

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Records of an authority in the store, below its prefix.
const (
	recCA       = "ca"
	recToken    = "token/"    // + id
	recEnrolled = "enrolled/" // + tier/name
	recRevoked  = "revoked/"  // + key hash
)

// CARecord is the record with the CA's key, without which a site's children no longer know it.
const CARecord = AuthorityRecords + recCA

// DefaultCertLife is how long a child's certificate lives. Children renew after two thirds of it.
const DefaultCertLife = 24 * time.Hour

// AuthorityConfig says whose authority it is. Site, Tier and Store are needed.
type AuthorityConfig struct {
	Site     string    // the federation's name at the root, the cluster's name at a cluster
	Tier     wire.Tier // of the parent: root or cluster
	Store    store.Store
	Prefix   string        // of its records; default "auth/"
	CertLife time.Duration // default DefaultCertLife
	// Reenrol lets in workers that hold a certificate of this CA and are not enrolled, and enrols them: for an authority that
	// has lost its enrolments. It has lost revocations, too.
	Reenrol bool
	Now     func() time.Time
	Log     *slog.Logger
}

// Authority is a site's certificate authority with its tokens and enrolled children. One process at a time may use it
// on a store; it keeps the enrolments in memory. It is safe for concurrent use.
type Authority struct {
	cfg    AuthorityConfig
	ca     *siteCA
	server serverCert
	codec  *frame.Codec

	change   sync.Mutex // held across the store's commits: enrolments change one after another; ...Locked need it; before mu
	mu       sync.Mutex // held to change the maps, and to read them without change; never across a commit
	enrolled map[string]*stored[Enrolled]
	revoked  map[string]Revoked
	changed  chan struct{} // closed at the next change of enrolled; nil: nobody asked
	tidied   time.Time     // when old tokens were looked for last
}

type stored[T any] struct {
	rev   int64
	value T
}

// Enrolled is a child that may connect.
type Enrolled struct {
	Tier    wire.Tier `json:"role"`
	Name    string    `json:"name"`
	Key     string    `json:"key"`     // hash of its public key
	Machine string    `json:"machine"` // where it was seen last
	Boot    string    `json:"boot,omitempty"`
	Counter uint64    `json:"counter"`           // of the newest certificate
	Attempt string    `json:"attempt,omitempty"` // the renewal that got it
	Joined  time.Time `json:"joined"`
	Issued  time.Time `json:"issued"`
	Expires time.Time `json:"expires"`
	// Public is the key itself, for renewals (SPKI).
	Public []byte `json:"public"`
	// Term is the highest one in which it has connected, if it is a cluster.
	Term uint64 `json:"term,omitempty"`
	// Quarantine is set while a second machine was seen with this identity.
	Quarantine *Quarantine `json:"quarantine,omitempty"`
}

// Quarantine names the two machines that claimed one identity.
type Quarantine struct {
	At    time.Time `json:"at"`
	First string    `json:"first"` // keeps working
	Later string    `json:"later"` // is refused
	Addr  string    `json:"addr,omitempty"`
	How   string    `json:"how"`
}

// Revoked is a key that may never come back.
type Revoked struct {
	Key  string    `json:"key"`
	Tier wire.Tier `json:"role"`
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	By   string    `json:"by,omitempty"`
	Why  string    `json:"why,omitempty"`
}

type caRecord struct {
	Site string `json:"site"`
	Cert []byte `json:"cert"` // DER
	Key  []byte `json:"key"`  // PKCS #8
}

// OpenAuthority reads the authority from the store, or makes it there.
func OpenAuthority(ctx context.Context, cfg AuthorityConfig) (*Authority, error) {
	if cfg.Store == nil || cfg.Tier != wire.TierRoot && cfg.Tier != wire.TierCluster {
		return nil, errors.New("open authority: a store and the tier root or cluster are needed")
	}
	if err := skerry.CheckName(cfg.Site); err != nil {
		return nil, fmt.Errorf("open authority: site: %w", err)
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, AuthorityRecords)
	if cfg.CertLife <= 0 {
		cfg.CertLife = DefaultCertLife
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authority{cfg: cfg, codec: frame.NewCodec()}
	if err := a.loadCA(ctx); err != nil {
		return nil, fmt.Errorf("open authority: %w", err)
	}
	if err := a.load(ctx); err != nil {
		return nil, fmt.Errorf("open authority: %w", err)
	}
	return a, nil
}

func (a *Authority) loadCA(ctx context.Context) error {
	rec, err := a.cfg.Store.Get(ctx, a.cfg.Prefix+recCA)
	if errors.Is(err, store.ErrNotFound) {
		others, _, err := a.cfg.Store.List(ctx, a.cfg.Prefix)
		if err != nil {
			return err
		}
		if len(others) > 0 {
			return fmt.Errorf("record %s is lost, and %d others of the authority are there; no new one takes its place, "+
				"because every child would have to join again: restore a backup", a.cfg.Prefix+recCA, len(others))
		}
		ca, err := newSiteCA(a.cfg.Site, a.cfg.Tier)
		if err != nil {
			return err
		}
		key, err := x509.MarshalPKCS8PrivateKey(ca.key)
		if err != nil {
			return err
		}
		value, err := json.Marshal(caRecord{a.cfg.Site, ca.cert.Raw, key})
		if err != nil {
			return err
		}
		absent := int64(0)
		if _, err := a.cfg.Store.Commit(ctx, []store.Op{{Key: a.cfg.Prefix + recCA, Value: value, Expect: &absent}}); err != nil {
			return fmt.Errorf("keep the site CA: %w", err)
		}
		a.ca = ca
		return nil
	}
	if err != nil {
		return err
	}
	var r caRecord
	if err := json.Unmarshal(rec.Value, &r); err != nil {
		return fmt.Errorf("record of the site CA is damaged: %w", err)
	}
	cert, err := x509.ParseCertificate(r.Cert)
	if err != nil {
		return fmt.Errorf("certificate of the site CA: %w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(r.Key)
	if err != nil {
		return fmt.Errorf("key of the site CA: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return fmt.Errorf("key of the site CA: %T cannot sign", key)
	}
	if r.Site != a.cfg.Site {
		return fmt.Errorf("the store belongs to the site %q, not %q; start with that name, or with another data directory", r.Site, a.cfg.Site)
	}
	a.ca = &siteCA{r.Site, a.cfg.Tier, cert, signer}
	return nil
}

func (a *Authority) load(ctx context.Context) error {
	recs, _, err := a.cfg.Store.List(ctx, a.cfg.Prefix)
	if err != nil {
		return err
	}
	enrolled, revoked := map[string]*stored[Enrolled]{}, map[string]Revoked{}
	for _, rec := range recs {
		key := strings.TrimPrefix(rec.Key, a.cfg.Prefix)
		switch {
		case strings.HasPrefix(key, recEnrolled):
			var e Enrolled
			if err := json.Unmarshal(rec.Value, &e); err != nil {
				return fmt.Errorf("record %s is damaged: %w", rec.Key, err)
			}
			enrolled[peerName(e.Tier, e.Name)] = &stored[Enrolled]{rec.Revision, e}
		case strings.HasPrefix(key, recRevoked):
			var r Revoked
			if err := json.Unmarshal(rec.Value, &r); err != nil {
				return fmt.Errorf("record %s is damaged: %w", rec.Key, err)
			}
			revoked[r.Key] = r
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enrolled, a.revoked = enrolled, revoked
	return nil
}

// commitLocked commits, and after an error reads again what the store has: a write of which nobody knows whether it is kept may be there.
func (a *Authority) commitLocked(ctx context.Context, ops ...store.Op) (int64, error) {
	rev, err := a.cfg.Store.Commit(ctx, ops)
	if err != nil {
		if err := a.load(context.WithoutCancel(ctx)); err != nil {
			a.cfg.Log.Error("read the enrolments again", "err", err)
		}
	}
	return rev, err
}

func peerName(tier wire.Tier, name string) string { return string(tier) + "/" + name }

// Site gives the site's name, CA its certificate (DER), Pin what tokens carry of it.
func (a *Authority) Site() string { return a.cfg.Site }
func (a *Authority) CA() []byte   { return slices.Clone(a.ca.cert.Raw) }
func (a *Authority) Pin() string  { return pinOf(a.ca.cert) }

// TokenOptions say what a token is good for.
type TokenOptions struct {
	Tier wire.Tier     // cluster at the root, worker at a cluster
	TTL  time.Duration // default 1 h, at most 30 days
	Name string        // binds the token to a name; empty: the child chooses
	// Replace allows the bound name to be taken from a key that holds it, for a device that was installed anew.
	Replace bool
	By      string // who asks, for the list
}

// MaxTokenTTL is the longest life of a token.
const MaxTokenTTL = 30 * 24 * time.Hour

// keepTokens is how long an expired token stays in the list, for people to see what became of it.
const keepTokens = 30 * 24 * time.Hour

// CreateToken makes a one-time token and gives its text, which is not kept.
func (a *Authority) CreateToken(ctx context.Context, o TokenOptions) (string, JoinToken, error) {
	switch {
	case o.Tier.Parent() == "":
		return "", JoinToken{}, skerry.Errorf(skerry.CodeInvalid, "role: a token is for a cluster or a worker, not for %q", o.Tier)
	case o.Tier.Parent() != a.cfg.Tier:
		return "", JoinToken{}, skerry.Errorf(skerry.CodeWrongTier, "role: a %s joins a %s, and this is a %s", o.Tier, o.Tier.Parent(),
			a.cfg.Tier).
			WithHint("create the token at the %s, with a context for it", o.Tier.Parent())
	case o.TTL < 0 || o.TTL > MaxTokenTTL:
		return "", JoinToken{}, skerry.Errorf(skerry.CodeInvalid, "ttl: %s is not between 0 and %s", o.TTL, MaxTokenTTL)
	case o.Replace && o.Name == "":
		return "", JoinToken{}, skerry.Errorf(skerry.CodeInvalid, "replace: needs a name").WithHint("name the member to replace with --name")
	}
	if o.Name != "" {
		if err := skerry.CheckName(o.Name); err != nil {
			return "", JoinToken{}, skerry.Errorf(skerry.CodeInvalid, "name: %w", err)
		}
	}
	now := a.cfg.Now()
	text := tokenText{o.Tier, randomText(5), randomText(20), a.Pin()}
	t := JoinToken{ID: text.id, Tier: o.Tier, Name: o.Name, Replace: o.Replace, Hash: hashSecret(text.secret), By: o.By,
		Created: now, Expires: now.Add(cmp.Or(o.TTL, time.Hour))}
	absent := int64(0)
	op, err := a.op(recToken+t.ID, t, &absent)
	if err != nil {
		return "", JoinToken{}, err
	}
	ops, err := a.oldTokens(ctx, now)
	if err != nil {
		return "", JoinToken{}, err
	}
	if _, err := a.cfg.Store.Commit(ctx, append(ops, op)); err != nil {
		return "", JoinToken{}, fmt.Errorf("keep token: %w", err)
	}
	return text.String(), t, nil
}

// oldTokens gives the writes that delete tokens of long ago, at most once an hour: a site may make thousands at a time.
func (a *Authority) oldTokens(ctx context.Context, now time.Time) (ops []store.Op, err error) {
	a.mu.Lock()
	due := now.Sub(a.tidied) > time.Hour
	if due {
		a.tidied = now
	}
	a.mu.Unlock()
	if !due {
		return nil, nil
	}
	list, err := a.Tokens(ctx)
	for _, t := range list {
		if now.Sub(t.Expires) > keepTokens && len(ops) < store.MaxOps-1 {
			ops = append(ops, store.Op{Key: a.cfg.Prefix + recToken + t.ID, Delete: true})
		}
	}
	return ops, err
}

func (a *Authority) op(key string, value any, expect *int64) (store.Op, error) {
	b, err := json.Marshal(value)
	return store.Op{Key: a.cfg.Prefix + key, Value: b, Expect: expect}, err
}

// Tokens lists all tokens, newest first.
func (a *Authority) Tokens(ctx context.Context) ([]JoinToken, error) {
	recs, _, err := a.cfg.Store.List(ctx, a.cfg.Prefix+recToken)
	if err != nil {
		return nil, err
	}
	var out []JoinToken
	for _, rec := range recs {
		var t JoinToken
		if err := json.Unmarshal(rec.Value, &t); err != nil {
			return nil, fmt.Errorf("record %s is damaged: %w", rec.Key, err)
		}
		out = append(out, t)
	}
	slices.SortStableFunc(out, func(x, y JoinToken) int { return y.Created.Compare(x.Created) })
	return out, nil
}

// DeleteToken withdraws a token by its id. Whoever joined with it stays.
func (a *Authority) DeleteToken(ctx context.Context, id string) error {
	if _, err := a.cfg.Store.Get(ctx, a.cfg.Prefix+recToken+id); err != nil {
		if errors.Is(err, store.ErrNotFound) {
			return skerry.Errorf(skerry.CodeNotFound, "token %q does not exist", id).WithHint("`skerry token list` shows the ids")
		}
		return err
	}
	_, err := a.cfg.Store.Commit(ctx, []store.Op{{Key: a.cfg.Prefix + recToken + id, Delete: true}})
	return err
}

// List gives the enrolled children by tier and name.
func (a *Authority) List() []Enrolled {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Enrolled
	for _, e := range a.enrolled {
		out = append(out, e.value)
	}
	slices.SortFunc(out, func(x, y Enrolled) int { return cmp.Or(cmp.Compare(x.Tier, y.Tier), cmp.Compare(x.Name, y.Name)) })
	return out
}

// Revocations lists the revoked keys, newest first.
func (a *Authority) Revocations() []Revoked {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []Revoked
	for _, r := range a.revoked {
		out = append(out, r)
	}
	slices.SortFunc(out, func(x, y Revoked) int { return y.At.Compare(x.At) })
	return out
}

// Revoke takes a child's key out for good and frees its name. The caller ends its connection.
func (a *Authority) Revoke(ctx context.Context, tier wire.Tier, name, by, why string) error {
	a.change.Lock()
	defer a.change.Unlock()
	e := a.enrolled[peerName(tier, name)]
	if e == nil {
		return skerry.Errorf(skerry.CodeNotFound, "%s %q is not enrolled here", tier, name)
	}
	r := Revoked{Key: e.value.Key, Tier: tier, Name: name, At: a.cfg.Now(), By: by, Why: why}
	op, err := a.op(recRevoked+r.Key, r, nil)
	if err != nil {
		return err
	}
	drop := store.Op{Key: a.cfg.Prefix + recEnrolled + peerName(tier, name), Delete: true, Expect: &e.rev}
	if _, err := a.commitLocked(ctx, op, drop); err != nil {
		return fmt.Errorf("revoke %s %q: %w", tier, name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked[r.Key] = r
	delete(a.enrolled, peerName(tier, name))
	a.signalLocked()
	return nil
}

// Quarantine notes that a second machine lives under a child's identity: first keeps working, later is refused. The link
// calls it for two live connections.
func (a *Authority) Quarantine(ctx context.Context, tier wire.Tier, name, first, later, addr, how string) error {
	a.change.Lock()
	defer a.change.Unlock()
	e := a.enrolled[peerName(tier, name)]
	if e == nil {
		return skerry.Errorf(skerry.CodeNotFound, "%s %q is not enrolled here", tier, name)
	}
	return a.quarantineLocked(ctx, e, Quarantine{At: a.cfg.Now(), First: first, Later: later, Addr: addr, How: how})
}

func (a *Authority) quarantineLocked(ctx context.Context, e *stored[Enrolled], q Quarantine) error {
	next := e.value
	next.Quarantine = &q
	a.cfg.Log.Warn("identity was cloned", "role", next.Tier, "name", next.Name, "first", q.First, "later", q.Later, "addr", q.Addr, "how",
		q.How)
	return a.putLocked(ctx, next, e.rev)
}

// Release ends a quarantine, once the operator has removed the copy.
func (a *Authority) Release(ctx context.Context, tier wire.Tier, name string) error {
	a.change.Lock()
	defer a.change.Unlock()
	e := a.enrolled[peerName(tier, name)]
	if e == nil {
		return skerry.Errorf(skerry.CodeNotFound, "%s %q is not enrolled here", tier, name)
	}
	next := e.value
	next.Quarantine = nil
	return a.putLocked(ctx, next, e.rev)
}

// putLocked keeps an enrolment together with other writes.
func (a *Authority) putLocked(ctx context.Context, e Enrolled, rev int64, also ...store.Op) error {
	op, err := a.op(recEnrolled+peerName(e.Tier, e.Name), e, &rev)
	if err != nil {
		return err
	}
	next, err := a.commitLocked(ctx, append(also, op)...)
	if err != nil {
		return fmt.Errorf("keep enrolment of %s %q: %w", e.Tier, e.Name, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.enrolled[peerName(e.Tier, e.Name)] = &stored[Enrolled]{next, e}
	a.signalLocked()
	return nil
}

// Changed is closed when an enrolment changes, one comes or one goes, after this call.
func (a *Authority) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = make(chan struct{})
	}
	return a.changed
}

func (a *Authority) signalLocked() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}
