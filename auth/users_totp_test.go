package auth

import (
	"bytes"
	"encoding/base32"
	"net/url"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
)

// TestTOTPVectors: RFC 6238, appendix B, cut to six digits.
func TestTOTPVectors(t *testing.T) {
	for at, want := range map[int64]string{59: "287082", 1111111109: "081804", 1111111111: "050471", 1234567890: "005924",
		2000000000: "279037", 20000000000: "353130"} {
		if got := totpCode([]byte("12345678901234567890"), at/totpStep); got != want {
			t.Errorf("at %d the code is %s, want %s", at, got, want)
		}
	}
}

// sealing are people whose server has a key.
func sealing(t *testing.T, st store.Store, c *clock, key byte) *People {
	t.Helper()
	p, err := OpenPeople(t.Context(), PeopleConfig{Site: "root", Store: st, Argon2: quick(), Now: c.Now,
		SealKey: bytes.Repeat([]byte{key}, 32)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// app is an authenticator app.
type app struct {
	secret []byte
	clock  *clock
}

func (a *app) code(steps int64) string {
	return totpCode(a.secret, a.clock.now.Unix()/totpStep+steps)
}

// enrolled gives people of whom ada has one-time codes, with her app and recovery codes.
func enrolled(t *testing.T) (*People, store.Store, *app, []string) {
	t.Helper()
	_, st, c := newPeople(t)
	p := sealing(t, st, c, 1)
	who, err := p.Authenticate(login(t, p).Access)
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.EnrolTOTP(t.Context(), who, "correct horse", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(s.URI)
	if err != nil || u.Scheme != "otpauth" || u.Host != "totp" || u.Path != "/Skerry root:ada" || u.Query().Get("secret") != s.Secret ||
		u.Query().Get("issuer") != "Skerry root" {
		t.Fatalf("the link is %s, %v", s.URI, err)
	}
	a := &app{clock: c}
	if a.secret, err = base32.StdEncoding.DecodeString(s.Secret); err != nil || len(a.secret) != totpSecret {
		t.Fatalf("secret %q, %v", s.Secret, err)
	}
	other := login(t, p) // before the first code nothing is asked for
	_, err = p.ConfirmTOTP(t.Context(), who, "", "")
	wantCode(t, err, skerry.CodeForbidden)
	recovery, err := p.ConfirmTOTP(t.Context(), who, a.code(0), "")
	if err != nil || len(recovery) != totpRecovery {
		t.Fatalf("%q, %v", recovery, err)
	}
	if _, err := p.Authenticate(other.Access); err == nil {
		t.Error("a session of before goes on")
	}
	if u, err := p.User("ada"); err != nil || !u.TOTP {
		t.Errorf("%+v, %v", u, err)
	}
	c.pass(totpStep * time.Second)
	return p, st, a, recovery
}

func with(code string) Credentials {
	return Credentials{User: "ada", Password: "correct horse", Code: code, Addr: "192.0.2.1"}
}

func wantNeedsCode(t *testing.T, err error, why string) {
	t.Helper()
	wantCode(t, err, skerry.CodeUnauthorized)
	if e := skerry.AsError(err); !NeedsCode(err) || !strings.Contains(e.Problems[0].Message, why) || e.Hint == "" {
		t.Errorf("got %+v, want field %s and %q", e, CodeField, why)
	}
}

func TestTOTPLogin(t *testing.T) {
	p, st, a, recovery := enrolled(t)
	_, err := p.Login(t.Context(), with(""))
	wantNeedsCode(t, err, "missing")
	_, err = p.Login(t.Context(), with(a.code(5)))
	wantNeedsCode(t, err, "wrong")
	_, err = p.Login(t.Context(), Credentials{User: "ada", Password: "wrong horse", Code: a.code(0)})
	if wantCode(t, err, skerry.CodeUnauthorized); NeedsCode(err) {
		t.Error("a code is asked for although the password is wrong")
	}
	code := a.code(0)
	tk, err := p.Login(t.Context(), with(code[:3]+" "+code[3:]))
	if err != nil {
		t.Fatal(err)
	}
	// A code works once, also after a restart, and so do those before it.
	for _, used := range []string{code, a.code(-1)} {
		_, err = p.Login(t.Context(), with(used))
		wantNeedsCode(t, err, "before")
		_, err = sealing(t, st, a.clock, 1).Login(t.Context(), with(used))
		wantNeedsCode(t, err, "before")
	}
	// A device's clock may be half a minute ahead or behind.
	if _, err = p.Login(t.Context(), with(a.code(1))); err != nil {
		t.Error(err)
	}
	a.clock.pass(3 * totpStep * time.Second)
	if _, err = p.Login(t.Context(), with(a.code(-1))); err != nil {
		t.Error(err)
	}
	// Recovery codes work once, without the key, and are kept nowhere.
	lost := sealing(t, st, a.clock, 2)
	for range freeFailures + 1 { // which is no failure of the user's, who may still come in otherwise
		_, err = lost.Login(t.Context(), with(a.code(0)))
		wantCode(t, err, skerry.CodeUnavailable)
	}
	if _, err = lost.Login(t.Context(), with(strings.ToUpper(recovery[3]))); err != nil {
		t.Error(err)
	}
	_, err = lost.Login(t.Context(), with(recovery[3]))
	wantNeedsCode(t, err, "wrong")
	recs, _, err := st.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		text := base32.StdEncoding.EncodeToString(a.secret)
		for _, s := range append(recovery, strings.ReplaceAll(recovery[0], "-", ""), string(a.secret), text) {
			if bytes.Contains(r.Value, []byte(s)) {
				t.Errorf("record %s contains a secret", r.Key)
			}
		}
	}
	// What programs use goes on; a password alone is no longer enough anywhere.
	if _, err := p.Refresh(t.Context(), tk.Refresh, ""); err != nil {
		t.Error(err)
	}
	text, _, err := p.CreateAccessToken(t.Context(), "ada", AccessTokenOptions{Name: "ci"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.AuthenticateBasic(t.Context(), "ada", text, ""); err != nil {
		t.Error(err)
	}
	for range 2 { // also when the password is remembered
		_, err = p.AuthenticateBasic(t.Context(), "ada", "correct horse", "")
		if wantCode(t, err, skerry.CodeUnauthorized); !strings.Contains(skerry.AsError(err).Hint, "access-token") {
			t.Errorf("%+v", err)
		}
	}
}

// TestTOTPGuessing: whoever has the password may not try a million codes, from wherever.
func TestTOTPGuessing(t *testing.T) {
	p, _, a, _ := enrolled(t)
	tried := 0
	for _, addr := range []string{"192.0.2.7", "192.0.2.8", "192.0.2.9"} {
		for range freeFailures {
			_, err := p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Code: a.code(7), Addr: addr})
			if NeedsCode(err) {
				tried++
			} else if codeOf(err) != skerry.CodeRateLimited {
				t.Fatal(err)
			}
			// The password alone, which is right, forgets no failure.
			p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Addr: addr})
		}
	}
	if tried != freeFailures {
		t.Errorf("%d codes could be tried, want %d", tried, freeFailures)
	}
	_, err := p.Login(t.Context(), with(a.code(0)))
	wantCode(t, err, skerry.CodeRateLimited)
	a.clock.pass(forgetAfter)
	if _, err := p.Login(t.Context(), with(a.code(0))); err != nil {
		t.Error(err)
	}
}

// TestTOTPPatientGuessing: whoever has the password and all the time there is gets one guess an hour, and none once an admin has set
// another password, which lets the user in at once.
func TestTOTPPatientGuessing(t *testing.T) {
	p, _, a, _ := enrolled(t)
	tried, began := 0, a.clock.now
	for a.clock.now.Sub(began) < 7*24*time.Hour {
		if _, err := p.limitedSpend(p.users["ada"], a.code(7), "192.0.2.1"); NeedsCode(err) {
			tried++
		}
		if a.clock.pass(5 * time.Minute); tried%13 == 12 { // they may wait until failures are forgotten, too
			a.clock.pass(forgetAfter)
		}
	}
	if tried > 7*24+24 {
		t.Errorf("%d codes could be tried in a week", tried)
	}
	next := "a new password"
	if _, err := p.ChangeUser(t.Context(), "ada", UserChange{Password: &next}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Login(t.Context(), Credentials{User: "ada", Password: next, Code: a.code(0), Addr: "192.0.2.1"}); err != nil {
		t.Error(err)
	}
}

// TestWaitsOfAClockThatWasAhead: nobody waits for a time that comes again only in a year.
func TestWaitsOfAClockThatWasAhead(t *testing.T) {
	p, _, a, _ := enrolled(t)
	a.clock.pass(365 * 24 * time.Hour)
	for range freeFailures {
		_, err := p.Login(t.Context(), Credentials{User: "ada", Password: "wrong horse", Addr: "192.0.2.1"})
		wantCode(t, err, skerry.CodeUnauthorized)
	}
	for range freeFailures {
		p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Code: a.code(7), Addr: "192.0.2.2"})
	}
	a.clock.pass(-365 * 24 * time.Hour)
	if _, err := p.Login(t.Context(), with(a.code(1))); err != nil {
		t.Errorf("got %v (%s)", err, skerry.AsError(err).Hint)
	}
}

func TestTOTPRemove(t *testing.T) {
	p, st, a, _ := enrolled(t)
	tk, err := p.Login(t.Context(), with(a.code(0)))
	if err != nil {
		t.Fatal(err)
	}
	who, err := p.Authenticate(tk.Access)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.EnrolTOTP(t.Context(), who, "correct horse", "")
	wantCode(t, err, skerry.CodeConflict)
	_, err = p.ConfirmTOTP(t.Context(), who, a.code(1), "")
	wantCode(t, err, skerry.CodeConflict)
	wantCode(t, p.RemoveTOTP(t.Context(), who, "wrong horse", a.code(1), ""), skerry.CodeForbidden)
	wantCode(t, p.RemoveTOTP(t.Context(), who, "correct horse", a.code(0), ""), skerry.CodeForbidden)
	machine := &Principal{User: "ada", Token: "ci"}
	wantCode(t, p.RemoveTOTP(t.Context(), machine, "correct horse", a.code(1), ""), skerry.CodeForbidden)
	if err := p.RemoveTOTP(t.Context(), who, "correct horse", a.code(1), ""); err != nil {
		t.Fatal(err)
	}
	login(t, p)
	wantCode(t, p.RemoveTOTP(t.Context(), who, "correct horse", "", ""), skerry.CodeNotFound)

	// An admin needs no code, and resets what was only begun, too.
	if _, err := p.EnrolTOTP(t.Context(), who, "correct horse", ""); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.ResetTOTP(t.Context(), "bob"), skerry.CodeNotFound)
	if err := p.ResetTOTP(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.ResetTOTP(t.Context(), "ada"), skerry.CodeNotFound)
	login(t, sealing(t, st, a.clock, 1))

	// Without a key there is nothing to keep a secret with.
	_, err = people(t, st, a.clock).EnrolTOTP(t.Context(), who, "correct horse", "")
	wantCode(t, err, skerry.CodeUnsupported)
}

// TestTOTPClockThatWasAhead: a code that was used under a clock far ahead does not lock its user out once the clock is right.
func TestTOTPClockThatWasAhead(t *testing.T) {
	p, _, a, _ := enrolled(t)
	a.clock.pass(1000 * time.Hour)
	if _, err := p.Login(t.Context(), with(a.code(0))); err != nil {
		t.Fatal(err)
	}
	a.clock.pass(-1000 * time.Hour)
	if _, err := p.Login(t.Context(), with(a.code(0))); err != nil {
		t.Error(err)
	}
}

// FuzzTOTP: whatever is sent as a code is refused as one.
func FuzzTOTP(f *testing.F) {
	for _, s := range []string{"", "000000", "12 34-56", "aaaa-bbbb-cccc-dddd", "١٢٣", "\x00\x00\x00\x00\x00\x00", strings.Repeat("9", 64)} {
		f.Add(s)
	}
	aead, _ := (&People{cfg: PeopleConfig{SealKey: make([]byte, 32)}}).sealer()
	u := &User{Name: "ada"}
	u.totp = &totp{Sealed: aead.Seal(nil, nil, make([]byte, totpSecret), u.bind()), Recovery: []string{hashSecret("of nobody")}}
	c := &clock{time.Unix(1e9, 0)}
	p := &People{cfg: PeopleConfig{SealKey: make([]byte, 32), Now: c.Now}}
	f.Fuzz(func(t *testing.T, code string) {
		next, err := p.spend(u, code)
		if err == nil {
			digits := strings.NewReplacer(" ", "", "-", "").Replace(code)
			if len(digits) != totpDigits || next.totp.Used == 0 || u.totp.Used != 0 {
				t.Errorf("%q is taken for a code", code)
			}
		} else if !NeedsCode(err) {
			t.Errorf("%q: %v", code, err)
		}
	})
}
