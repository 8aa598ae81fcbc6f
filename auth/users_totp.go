package auth

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"skerry.dev/skerry"
)

// One-time codes of RFC 6238, as every authenticator app computes them without being told: HMAC-SHA-1, 30 seconds, six digits.
const (
	totpStep     = 30 // seconds
	totpDigits   = 6
	totpSkew     = 1  // steps that a clock may be off
	totpSecret   = 20 // bytes
	totpRecovery = 8  // codes
	// totpAhead is how many steps in the future the last used code may be. One that is further was used under a clock that was ahead.
	totpAhead = int64(time.Hour / time.Second / totpStep)
	// Of a million codes three are good, so who guesses for as long as they like gets few: one an hour.
	totpMostWait = time.Hour
	totpForget   = 24 * time.Hour
)

// totp is what a login asks for beside the password. It is never changed, only replaced.
type totp struct {
	Sealed  []byte `json:"sealed"`            // the secret, for the key of the role's secrets
	Pending bool   `json:"pending,omitempty"` // no code was seen yet, so logins ask for none
	Used    int64  `json:"used,omitempty"`    // step of the newest code that was accepted
	// Recovery are hashes of codes that work once each, and without the key.
	Recovery []string `json:"recovery,omitempty"`
}

// TOTPSecret is what an authenticator app needs.
type TOTPSecret struct {
	Secret string `json:"secret" doc:"Base32, to be typed into an authenticator app."`
	URI    string `json:"uri" doc:"The same as a link (otpauth://), for apps that open or scan it."`
}

// totpCode gives the code of a step (RFC 4226, section 5.3).
func totpCode(secret []byte, step int64) string {
	h := hmac.New(sha1.New, secret)
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	sum := h.Sum(nil)
	at := sum[len(sum)-1] & 15
	return fmt.Sprintf("%0*d", totpDigits, binary.BigEndian.Uint32(sum[at:])&0x7fffffff%1_000_000)
}

// codeError refuses a login, or what else needs a code, and names the field.
func codeError(why string) error {
	e := skerry.Errorf(skerry.CodeUnauthorized, "the password is right, but the login of this user also needs a one-time code").
		WithHint("take the next code from your authenticator app, or a recovery code; an admin can end this with `skerry user reset-totp NAME`")
	e.Problems = []skerry.Problem{{Path: CodeField, Message: why}}
	return e
}

// CodeField is the field that an error names when a login needs a one-time code, or another one.
const CodeField = "otp"

// NeedsCode reports whether a login was refused for want of a one-time code.
func NeedsCode(err error) bool {
	e := skerry.AsError(err)
	return e != nil && slices.ContainsFunc(e.Problems, func(p skerry.Problem) bool { return p.Path == CodeField })
}

// sealer seals secrets of one-time codes.
func (p *People) sealer() (cipher.AEAD, error) {
	if len(p.cfg.SealKey) == 0 {
		return nil, errors.New("there is no key")
	}
	block, err := aes.NewCipher(p.cfg.SealKey)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// bind keeps one user's sealed secret from being passed off as another's.
func (u *User) bind() []byte { return []byte("totp " + u.Name) }

// secretOf opens a user's secret.
func (p *People) secretOf(u *User) ([]byte, error) {
	aead, err := p.sealer()
	if err == nil {
		var secret []byte
		if secret, err = aead.Open(nil, nil, u.totp.Sealed, u.bind()); err == nil {
			return secret, nil
		}
	}
	p.cfg.Log.Error("the secret of a user's one-time codes cannot be opened", "user", u.Name, "err", err)
	return nil, skerry.Errorf(skerry.CodeUnavailable,
		"one-time codes of user %s cannot be checked: this server's key of the secrets is not the one they were sealed for", u.Name).
		WithHint("log in with a recovery code, have an admin run `skerry user reset-totp %s`, or put the file secrets.key back", u.Name)
}

// spend checks a code and gives the user without it: each works once. The caller keeps that, and counts failures.
func (p *People) spend(user *User, code string) (*User, error) {
	code = strings.NewReplacer(" ", "", "-", "").Replace(code)
	if code == "" {
		return nil, codeError("is missing")
	}
	next, f := *user, *user.totp
	next.totp = &f
	if len(code) != totpDigits {
		i := slices.Index(f.Recovery, hashSecret(strings.ToLower(code)))
		if i < 0 {
			return nil, codeError("is wrong")
		}
		f.Recovery = slices.Delete(slices.Clone(f.Recovery), i, i+1)
		return &next, nil
	}
	secret, err := p.secretOf(user)
	if err != nil {
		return nil, err
	}
	now := p.cfg.Now().Unix() / totpStep
	if f.Used-now > totpAhead {
		f.Used = 0
	}
	why := "is wrong"
	for step := now - totpSkew; step <= now+totpSkew; step++ {
		if subtle.ConstantTimeCompare([]byte(totpCode(secret, step)), []byte(code)) != 1 {
			continue
		}
		if step > f.Used {
			f.Used = step
			return &next, nil
		}
		why = "was used before, or is older than one that was"
	}
	return nil, codeError(why)
}

// limitedSpend is spend for codes from outside. Whoever gets here knows the password, so the limit is the user's, wherever the guesses come
// from: a code has a million values alone.
func (p *People) limitedSpend(u *User, code, addr string) (*User, error) {
	now := p.cfg.Now()
	if err := p.codes.check(now, u.Name, u.Name); err != nil {
		return nil, err
	}
	next, err := p.spend(u, code)
	switch {
	case err == nil:
		p.codes.clear(u.Name, u.Name)
	case code != "" && NeedsCode(err):
		p.codes.failed(now, u.Name, u.Name)
		p.limit.failed(now, u.Name, addr)
	}
	return next, err
}

// ownLocked gives the user of a session, whose password has this hash if one is given. An access token may not change how its user logs in.
func (p *People) ownLocked(who *Principal, hash string) (*User, error) {
	if who.Session == "" {
		return nil, skerry.Errorf(skerry.CodeForbidden, "an access token cannot change how its user logs in").
			WithHint("log in with a password first")
	}
	u := p.users[who.User]
	if u == nil {
		return nil, noUser(who.User)
	}
	if hash != "" && u.Hash != hash {
		return nil, wrongOwn()
	}
	return u, nil
}

func wrongOwn() error { return skerry.Errorf(skerry.CodeForbidden, "the password is wrong") }

// checkOwn checks the password of whoever asks, who is logged in, and gives the hash of it.
func (p *People) checkOwn(ctx context.Context, who *Principal, password, addr string) (hash string, err error) {
	if u, err := p.User(who.User); err == nil && u.Outside != "" {
		return "", skerry.Errorf(skerry.CodeConflict, "user %s logs in at an identity provider, and has no password or codes here", u.Name).
			WithHint("change them there")
	}
	hash, err = p.checkSecret(ctx, who.User, password, addr)
	if err != nil && skerry.AsError(err).Code == skerry.CodeUnauthorized {
		err = wrongOwn()
	}
	return hash, err
}

// EnrolTOTP makes a secret for a user's authenticator app. Logins ask for its codes once ConfirmTOTP has seen one.
func (p *People) EnrolTOTP(ctx context.Context, who *Principal, password, addr string) (TOTPSecret, error) {
	hash, err := p.checkOwn(ctx, who, password, addr)
	if err != nil {
		return TOTPSecret{}, err
	}
	aead, err := p.sealer()
	if err != nil {
		return TOTPSecret{}, skerry.Errorf(skerry.CodeUnsupported, "this server cannot seal secrets: %w", err)
	}
	secret := make([]byte, totpSecret)
	rand.Read(secret)
	p.change.Lock()
	defer p.change.Unlock()
	u, err := p.ownLocked(who, hash)
	if err != nil {
		return TOTPSecret{}, err
	}
	if u.TOTP {
		return TOTPSecret{}, skerry.Errorf(skerry.CodeConflict, "your logins ask for one-time codes already").
			WithHint("`skerry totp disable` ends that; then enable it again for another app")
	}
	next := *u
	next.totp = &totp{Sealed: aead.Seal(nil, nil, secret, u.bind()), Pending: true}
	if err := p.putUserLocked(ctx, &next); err != nil {
		return TOTPSecret{}, err
	}
	text := base32.StdEncoding.EncodeToString(secret) // 20 bytes need no padding
	issuer := url.PathEscape("Skerry " + p.cfg.Site)
	return TOTPSecret{text, fmt.Sprintf("otpauth://totp/%s:%s?secret=%s&issuer=%s", issuer, url.PathEscape(u.Name), text, issuer)}, nil
}

// ConfirmTOTP takes the first code, and gives recovery codes, which are not kept. The user's other sessions end.
func (p *People) ConfirmTOTP(ctx context.Context, who *Principal, code, addr string) ([]string, error) {
	p.change.Lock()
	defer p.change.Unlock()
	user, err := p.ownLocked(who, "")
	if err != nil {
		return nil, err
	}
	if user.totp == nil || !user.totp.Pending {
		return nil, skerry.Errorf(skerry.CodeConflict, "no secret waits for its first code").WithHint("begin with `skerry totp enable`")
	}
	next, err := p.limitedSpend(user, code, addr)
	if err != nil {
		return nil, confirmError(err)
	}
	f := next.totp
	f.Pending, next.TOTP = false, true
	var out []string
	for range totpRecovery {
		text := randomText(10)
		f.Recovery = append(f.Recovery, hashSecret(text))
		out = append(out, text[:4]+"-"+text[4:8]+"-"+text[8:12]+"-"+text[12:])
	}
	if err := p.putUserLocked(ctx, next, p.endOpsLocked(user.Name, who.Session)...); err != nil {
		return nil, err
	}
	p.forgetSessionsLocked(user.Name, who.Session)
	return out, nil
}

// confirmError is a wrong code's error for somebody who is logged in.
func confirmError(err error) error {
	if !NeedsCode(err) {
		return err
	}
	e := skerry.Errorf(skerry.CodeForbidden, "the code does not fit").
		WithHint("take the next one, and check the clocks of the device and of this server")
	e.Problems = skerry.AsError(err).Problems
	return e
}

// RemoveTOTP ends one's own one-time codes.
func (p *People) RemoveTOTP(ctx context.Context, who *Principal, password, code, addr string) error {
	hash, err := p.checkOwn(ctx, who, password, addr)
	if err != nil {
		return err
	}
	p.change.Lock()
	defer p.change.Unlock()
	u, err := p.ownLocked(who, hash)
	if err != nil {
		return err
	}
	if u.totp == nil {
		return noTOTP(u.Name)
	}
	if u.TOTP {
		if _, err := p.limitedSpend(u, code, addr); err != nil {
			return confirmError(err)
		}
	}
	return p.dropTOTPLocked(ctx, u)
}

// ResetTOTP ends a user's one-time codes without one: the device may be lost.
func (p *People) ResetTOTP(ctx context.Context, name string) error {
	p.change.Lock()
	defer p.change.Unlock()
	u := p.users[name]
	switch {
	case u == nil:
		return noUser(name)
	case u.totp == nil:
		return noTOTP(name)
	}
	p.codes.clear(name, name)
	return p.dropTOTPLocked(ctx, u)
}

func (p *People) dropTOTPLocked(ctx context.Context, u *User) error {
	next := *u
	next.TOTP, next.totp = false, nil
	return p.putUserLocked(ctx, &next)
}

func noTOTP(user string) error {
	return skerry.Errorf(skerry.CodeNotFound, "logins of user %s ask for no one-time codes", user)
}
