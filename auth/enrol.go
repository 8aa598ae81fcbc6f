package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// Join enrols the key of a request by a token and answers with its first certificate. The token is used up and the
// enrolment kept in one commit. Errors for the peer are *wire.Refuse. addr is for the log.
func (a *Authority) Join(ctx context.Context, req *wire.Join, addr string) (*wire.Joined, error) {
	text, err := parseToken(req.Token)
	if err != nil {
		return nil, err
	}
	pub, key, err := checkCSR(req.CSR)
	if err != nil {
		return nil, err
	}
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return nil, err
	}
	a.change.Lock()
	defer a.change.Unlock()
	rec, err := a.cfg.Store.Get(ctx, a.cfg.Prefix+recToken+text.id)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	var t JoinToken
	if err == nil {
		if err := json.Unmarshal(rec.Value, &t); err != nil {
			return nil, fmt.Errorf("record %s is damaged: %w", rec.Key, err)
		}
	}
	if err != nil || !t.matches(text.secret) {
		return nil, &wire.Refuse{Code: wire.RefuseTokenUnknown, Reason: fmt.Sprintf("site %q does not know this token", a.cfg.Site),
			Hint: "create one there with `skerry token create --role " + string(req.Tier) + "`"}
	}
	now := a.cfg.Now()
	name, err := t.check(now, req.Tier, req.Name, key)
	if err != nil {
		return nil, err
	}
	again := t.Used != nil // the same key: the answer may have been lost
	if r, ok := a.revoked[key]; ok {
		return nil, refuseRevoked(r)
	}
	e := Enrolled{Tier: t.Tier, Name: name, Key: key, Public: spki, Joined: now}
	var rev int64
	var ops []store.Op
	if old := a.enrolled[peerName(t.Tier, name)]; old != nil {
		rev = old.rev
		switch {
		case old.value.Key == key:
			// Once the answer has arrived, who comes again has copied the key and the token: neither a renewal nor a
			// quarantine is undone by a token that was used up.
			if again && (old.value.Attempt != "" || old.value.Quarantine != nil || old.value.Machine != req.Machine) {
				return nil, t.refuseUsed()
			}
			e = old.value
			e.Quarantine = nil
		case t.Replace && t.Name == name:
			op, err := a.op(recRevoked+old.value.Key, Revoked{Key: old.value.Key, Tier: t.Tier, Name: name, At: now, By: t.By,
				Why: "replaced by a new installation on " + req.Machine}, nil)
			if err != nil {
				return nil, err
			}
			ops = append(ops, op)
		default:
			return nil, &wire.Refuse{Code: wire.RefuseNameTaken,
				Reason: fmt.Sprintf("a %s %q is enrolled already, on machine %q since %s, with another key", t.Tier, name, old.value.Machine,
					old.value.Joined.UTC().Format(time.RFC3339)),
				Hint: fmt.Sprintf("choose another name with --name; if this is the same device installed anew, create a token with `skerry token create --role %s --name %s --replace`",
					t.Tier, name)}
		}
	}
	t.Used = &TokenUse{now, name, key, req.Machine}
	op, err := a.op(recToken+t.ID, t, &rec.Revision)
	if err != nil {
		return nil, err
	}
	e.Counter++
	e.Machine, e.Boot, e.Attempt = req.Machine, req.Boot, ""
	answer, err := a.certify(&e, now, req.SiteCA)
	if err != nil {
		return nil, err
	}
	replaced := a.enrolled[peerName(t.Tier, name)]
	if err := a.putLocked(ctx, e, rev, append(ops, op)...); err != nil {
		return nil, err
	}
	if replaced != nil && replaced.value.Key != key {
		a.mu.Lock()
		a.revoked[replaced.value.Key] = Revoked{Key: replaced.value.Key, Tier: t.Tier, Name: name, At: now, By: t.By}
		a.mu.Unlock()
	}
	a.cfg.Log.Info("joined", "role", e.Tier, "name", e.Name, "machine", e.Machine, "addr", addr, "token", t.ID)
	return answer, nil
}

// certify issues the certificate for the enrolment's present counter.
func (a *Authority) certify(e *Enrolled, now time.Time, siteCA []byte) (*wire.Joined, error) {
	pub, err := x509.ParsePKIXPublicKey(e.Public)
	if err != nil {
		return nil, fmt.Errorf("enrolled key of %s %q: %w", e.Tier, e.Name, err)
	}
	cert, err := a.ca.issue(pub, e.Tier, e.Name, e.Counter, now, a.cfg.CertLife, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	e.Issued, e.Expires = now, now.Add(a.cfg.CertLife)
	j := &wire.Joined{Tier: e.Tier, Name: e.Name, Site: a.cfg.Site, Certificate: cert, CA: a.ca.cert.Raw, Counter: e.Counter,
		Life: uint32(a.cfg.CertLife / time.Second)}
	if len(siteCA) > 0 && e.Tier == wire.TierCluster {
		if j.SiteCert, err = a.ca.certifySite(siteCA, e.Name, e.Key); err != nil {
			return nil, err
		}
	}
	return j, nil
}

func refuseRevoked(r Revoked) error {
	return &wire.Refuse{Code: wire.RefuseRevoked,
		Reason: fmt.Sprintf("the key of %s %q was revoked at %s", r.Tier, r.Name, r.At.UTC().Format(time.RFC3339)),
		Hint:   "to bring this device back, delete its data directory and join it with a new token"}
}

// lookupLocked finds the enrolment behind a verified certificate. Either lock will do.
func (a *Authority) lookupLocked(id wire.PeerIdentity) (*stored[Enrolled], error) {
	if r, ok := a.revoked[id.Key]; ok {
		return nil, refuseRevoked(r)
	}
	e := a.enrolled[peerName(id.Tier, id.Name)]
	if e == nil || e.value.Key != id.Key || id.Site != a.cfg.Site || id.Tier.Parent() != a.cfg.Tier {
		return nil, &wire.Refuse{Code: wire.RefuseUnknown,
			Reason: fmt.Sprintf("%s %q is not enrolled at site %q with this key", id.Tier, id.Name, a.cfg.Site),
			Hint:   "the site may have been restored from a backup made before this device joined: join again with a new token, what runs stays"}
	}
	return e, nil
}

// Admit decides whether a verified identity may connect now. hello is nil for a stream connection.
//
// A cluster that claims a lower term than one in which it has been here is refused: another machine has taken its place since.
func (a *Authority) Admit(ctx context.Context, id wire.PeerIdentity, hello *wire.Hello) error {
	if hello != nil {
		if err := a.reenrol(ctx, id, hello.Machine); err != nil {
			return err
		}
	}
	e, err := a.admit(id, hello)
	if err != nil || hello == nil || id.Tier != wire.TierCluster || hello.Term <= e.Term {
		return err
	}
	a.change.Lock()
	defer a.change.Unlock()
	now, err := a.lookupLocked(id)
	if err != nil {
		return err
	}
	next := now.value
	next.Term = max(next.Term, hello.Term)
	return a.putLocked(ctx, next, now.rev)
}

// reenrol enrols a worker that a rebuilt site has forgotten, if that is allowed and its name is free.
func (a *Authority) reenrol(ctx context.Context, id wire.PeerIdentity, machine string) error {
	if !a.cfg.Reenrol || id.Tier != wire.TierWorker || id.Site != a.cfg.Site {
		return nil
	}
	a.change.Lock()
	defer a.change.Unlock()
	if _, gone := a.revoked[id.Key]; gone || a.enrolled[peerName(id.Tier, id.Name)] != nil {
		return nil
	}
	now := a.cfg.Now()
	a.cfg.Log.Warn("enrolled again by its certificate", "role", id.Tier, "name", id.Name, "machine", cutText(machine))
	return a.putLocked(ctx, Enrolled{Tier: id.Tier, Name: id.Name, Key: id.Key, Public: id.Public, Machine: cutText(machine),
		Counter: id.Counter, Joined: now, Issued: now, Expires: id.Expires}, 0)
}

func (a *Authority) admit(id wire.PeerIdentity, hello *wire.Hello) (Enrolled, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e, err := a.lookupLocked(id)
	if err != nil {
		return Enrolled{}, err
	}
	if hello != nil && id.Tier == wire.TierCluster && hello.Term != 0 && hello.Term < e.value.Term {
		return Enrolled{}, &wire.Refuse{Code: wire.RefuseDeposed, RetryAfter: 5000,
			Reason: fmt.Sprintf("%s %q was led in term %d already, on machine %q, and this one claims term %d", id.Tier, id.Name, e.value.Term,
				e.value.Machine, hello.Term),
			Hint: "if the site was restored by hand and this one is right, join it anew with a token made with --replace"}
	}
	if q := e.value.Quarantine; q != nil && (id.Counter < e.value.Counter || hello != nil && hello.Machine == q.Later && q.Later != q.First) {
		return Enrolled{}, refuseClone(&e.value, q)
	}
	if a.cfg.Now().After(id.Expires) {
		return Enrolled{}, &wire.Refuse{Code: wire.RefuseExpired,
			Reason: fmt.Sprintf("the certificate of %s %q expired at %s", id.Tier, id.Name, id.Expires.UTC().Format(time.RFC3339)),
			Hint:   "the agent renews it by itself; if this stays, compare the clocks", RetryAfter: 1}
	}
	return e.value, nil
}

func refuseClone(e *Enrolled, q *Quarantine) error {
	return &wire.Refuse{Code: wire.RefuseClone,
		Reason: fmt.Sprintf("%s %q lives on two machines: %q keeps the name, %q (%s) is kept out since %s: %s", e.Tier, e.Name, q.First,
			q.Later, q.Addr, q.At.UTC().Format(time.RFC3339), q.How),
		Hint: fmt.Sprintf("a data directory was copied: on the copy, delete it and join under another name with a new token; then run `skerry member release %s`", e.Name)}
}

// Renew gives the next certificate to an enrolled key, also after the last one expired. A counter that was used up
// before is proof of a copied data directory: the copy that comes later is kept out.
func (a *Authority) Renew(ctx context.Context, id wire.PeerIdentity, req *wire.Renew, addr string) (*wire.Joined, error) {
	if err := a.reenrol(ctx, id, req.Machine); err != nil {
		return nil, err
	}
	a.change.Lock()
	defer a.change.Unlock()
	old, err := a.lookupLocked(id)
	if err != nil {
		return nil, err
	}
	e := old.value
	switch again := req.Counter+1 == e.Counter && req.Attempt != "" && req.Attempt == e.Attempt && req.Machine == e.Machine; {
	case again: // the answer was lost: the same one once more
	case req.Counter >= e.Counter:
		// Ahead of us is only who outlived a restored backup.
		e.Counter = req.Counter + 1
		e.Attempt = req.Attempt
	default:
		q := e.Quarantine
		if q == nil || q.Later != req.Machine {
			q = &Quarantine{At: a.cfg.Now(), First: e.Machine, Later: req.Machine, Addr: addr,
				How: fmt.Sprintf("it renewed with counter %d, which was used up", req.Counter)}
			if err := a.quarantineLocked(ctx, old, *q); err != nil {
				return nil, err
			}
		}
		return nil, refuseClone(&e, q)
	}
	if q := e.Quarantine; q != nil && req.Machine == q.Later && q.Later != q.First {
		return nil, refuseClone(&e, q)
	}
	if req.Counter > 1<<62 {
		return nil, &wire.Refuse{Code: wire.RefuseMalformed, Reason: "the counter of the renewal is absurd"}
	}
	e.Machine, e.Boot = req.Machine, req.Boot
	answer, err := a.certify(&e, a.cfg.Now(), req.SiteCA)
	if err != nil {
		return nil, err
	}
	if err := a.putLocked(ctx, e, old.rev); err != nil {
		return nil, err
	}
	return answer, nil
}

// Identify reads the verified certificate of a child.
func (a *Authority) Identify(cs tls.ConnectionState) (wire.PeerIdentity, error) {
	id, err := verifyLeaf(a.ca.cert, cs, x509.ExtKeyUsageClientAuth)
	if err == nil && id.Tier.Parent() != a.cfg.Tier {
		err = fmt.Errorf("a %s does not connect to a %s", id.Tier, a.cfg.Tier)
	}
	return id, err
}

const (
	joinProto    = "skerry-join/1"
	imagesProto  = "skerry-images/1"
	serverUsage  = x509.ExtKeyUsageServerAuth
	serverLife   = 30 * 24 * time.Hour
	maxMachine   = 256
	joinDeadline = 20 * time.Second
)

// cutText bounds and cleans what a device says about itself before it reaches logs and records.
func cutText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
	if len(s) > maxMachine {
		s = strings.ToValidUTF8(s[:maxMachine], "")
	}
	return s
}
