package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/store"
)

// clock is set by tests.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time        { return c.now }
func (c *clock) pass(d time.Duration)  { c.now = c.now.Add(d) }
func codeOf(err error) (c skerry.Code) { return skerry.AsError(err).Code }
func quick() Argon2                    { return Argon2{Memory: 64, Time: 1} }
func adminGrants() []Grant             { return []Grant{{RoleAdmin, Any, Any}} }
func wantCode(t *testing.T, err error, c skerry.Code) {
	t.Helper()
	if err == nil || codeOf(err) != c {
		t.Fatalf("got %v, want an error of code %s", err, c)
	}
}

func people(t *testing.T, st store.Store, c *clock) *People {
	t.Helper()
	p, err := OpenPeople(t.Context(), PeopleConfig{Site: "root", Store: st, Argon2: quick(), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newPeople(t *testing.T) (*People, store.Store, *clock) {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	c := &clock{time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)}
	p := people(t, st, c)
	if _, err := p.CreateUser(t.Context(), NewUser{Name: "ada", Password: "correct horse", Grants: adminGrants()}); err != nil {
		t.Fatal(err)
	}
	return p, st, c
}

func login(t *testing.T, p *People) Tokens {
	t.Helper()
	tk, err := p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Addr: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	return tk
}

func TestArgon2Parameters(t *testing.T) {
	a := Argon2{}.fill()
	if a.Memory < 19<<10 || a.Time < 2 {
		t.Fatalf("%+v is below 19 MiB and 2 passes", a)
	}
	h := a.hash("a password")
	if !strings.HasPrefix(h, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hash %s", h)
	}
	if !verifyPassword(h, "a password") || verifyPassword(h, "another") || a.hash("a password") == h {
		t.Error("the hash does not verify, or has no salt")
	}
	for _, bad := range []string{"", "x", "$argon2id$v=19$m=99999999,t=2,p=1$AAAA$AAAA", "$argon2id$v=19$m=64,t=0,p=1$AAAA$AAAA", "$argon2i$v=19$m=64,t=1,p=1$AAAA$AAAA"} {
		if verifyPassword(bad, "") {
			t.Errorf("%q verifies", bad)
		}
	}
}

func TestLoginRefreshLogout(t *testing.T) {
	p, st, c := newPeople(t)
	tk := login(t, p)
	who, err := p.Authenticate(tk.Access)
	if err != nil || who.User != "ada" || !who.May(ScopeUsersAdmin, "", "") {
		t.Fatalf("%+v %v", who, err)
	}
	c.pass(AccessLife + time.Second)
	_, err = p.Authenticate(tk.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
	next, err := p.Refresh(t.Context(), tk.Refresh, "192.0.2.1")
	if err != nil || next.Refresh == tk.Refresh {
		t.Fatalf("%+v %v", next, err)
	}
	// A restart keeps the session.
	p = people(t, st, c)
	if who, err = p.Authenticate(next.Access); err != nil {
		t.Fatal(err)
	}
	if err := p.Logout(t.Context(), who); err != nil {
		t.Fatal(err)
	}
	_, err = p.Authenticate(next.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
	_, err = p.Refresh(t.Context(), next.Refresh, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	_, err = people(t, st, c).Authenticate(next.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
}

func TestReusedRefreshTokenEndsTheSession(t *testing.T) {
	p, _, c := newPeople(t)
	first := login(t, p)
	second, err := p.Refresh(t.Context(), first.Refresh, "")
	if err != nil {
		t.Fatal(err)
	}
	// Two commands at the same moment: no new refresh token, and no harm.
	again, err := p.Refresh(t.Context(), first.Refresh, "")
	if err != nil || again.Refresh != "" || again.Access == "" {
		t.Fatalf("%+v %v", again, err)
	}
	c.pass(refreshLeeway)
	_, err = p.Refresh(t.Context(), first.Refresh, "198.51.100.7")
	wantCode(t, err, skerry.CodeUnauthorized)
	_, err = p.Refresh(t.Context(), second.Refresh, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	_, err = p.Authenticate(second.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
	// A made-up one ends nothing.
	third := login(t, p)
	parts := strings.Split(third.Refresh, ".")
	_, err = p.Refresh(t.Context(), "skr1."+parts[1]+".guess", "")
	wantCode(t, err, skerry.CodeUnauthorized)
	if _, err = p.Authenticate(third.Access); err != nil {
		t.Error(err)
	}
}

func TestSessionsEnd(t *testing.T) {
	p, _, c := newPeople(t)
	a, b := login(t, p), login(t, p)
	who, err := p.Authenticate(a.Access)
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.ChangePassword(t.Context(), who, "not the old one", "new password", ""), skerry.CodeForbidden)
	if err := p.ChangePassword(t.Context(), who, "correct horse", "another password", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Authenticate(a.Access); err != nil {
		t.Errorf("the session that changed it ended: %v", err)
	}
	_, err = p.Authenticate(b.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
	_, err = p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse"})
	wantCode(t, err, skerry.CodeUnauthorized)
	c.pass(SessionIdle)
	_, err = p.Refresh(t.Context(), a.Refresh, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	// Too many sessions: the oldest goes.
	var list []Tokens
	for range maxUserSession + 1 {
		tk, err := p.Login(t.Context(), Credentials{User: "ada", Password: "another password"})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, tk)
		c.pass(time.Second)
	}
	_, err = p.Authenticate(list[0].Access)
	wantCode(t, err, skerry.CodeUnauthorized)
	if _, err = p.Authenticate(list[1].Access); err != nil {
		t.Error(err)
	}
}

func TestFailedLoginsWait(t *testing.T) {
	p, _, c := newPeople(t)
	for _, user := range []string{"ada", "nobody"} { // the answers do not tell which exists
		for range freeFailures {
			_, err := p.Login(t.Context(), Credentials{User: user, Password: "wrong", Addr: "192.0.2.9"})
			wantCode(t, err, skerry.CodeUnauthorized)
			if err.Error() != wrongLogin().Error() {
				t.Errorf("%s: %v", user, err)
			}
		}
		_, err := p.Login(t.Context(), Credentials{User: user, Password: "correct horse", Addr: "192.0.2.9"})
		wantCode(t, err, skerry.CodeRateLimited)
	}
	if _, err := p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Addr: "192.0.2.10"}); err != nil {
		t.Errorf("another address was locked out: %v", err)
	}
	c.pass(2 * time.Second)
	if _, err := p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Addr: "192.0.2.9"}); err != nil {
		t.Errorf("after the wait: %v", err)
	}
	// Many names from one address.
	for i := 0; i < freeAddress; i++ {
		p.Login(t.Context(), Credentials{User: "user" + strings.Repeat("x", i+1), Password: "wrong", Addr: "203.0.113.5"})
	}
	_, err := p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse", Addr: "203.0.113.5"})
	wantCode(t, err, skerry.CodeRateLimited)
}

func TestForgedAccessTokens(t *testing.T) {
	p, _, c := newPeople(t)
	other, _, _ := newPeople(t)
	tk := login(t, p)
	foreign := login(t, other)
	parts := strings.Split(tk.Access, ".")
	for name, s := range map[string]string{
		"empty": "", "text": "x", "other key": foreign.Access, "no signature": parts[0] + "." + parts[1] + ".",
		"alg none": "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0." + parts[1] + ".", "long": strings.Repeat("a", maxBearer+1), "access": "ska1.a.b", "access parts": "ska1.a",
	} {
		if _, err := p.Authenticate(s); err == nil || codeOf(err) != skerry.CodeUnauthorized {
			t.Errorf("%s: %v", name, err)
		}
	}
	_ = c
}

func TestAccessTokens(t *testing.T) {
	p, st, c := newPeople(t)
	text, tok, err := p.CreateAccessToken(t.Context(), "ada", AccessTokenOptions{Name: "ci", TTL: time.Hour, Scopes: []Scope{ScopeAppsWrite}})
	if err != nil {
		t.Fatal(err)
	}
	who, err := p.Authenticate(text)
	if err != nil || !who.May(ScopeAppsWrite, "acme", "") || who.May(ScopeUsersAdmin, "", "") || who.Somewhere(ScopeAppsRead) {
		t.Fatalf("%+v %v", who, err)
	}
	recs, _, _ := st.List(t.Context(), "")
	for _, r := range recs {
		if strings.Contains(string(r.Value), strings.Split(text, ".")[2]) {
			t.Errorf("record %s holds the secret", r.Key)
		}
	}
	_, _, err = p.CreateAccessToken(t.Context(), "ada", AccessTokenOptions{Name: "ci"})
	wantCode(t, err, skerry.CodeConflict)
	_, _, err = p.CreateAccessToken(t.Context(), "ada", AccessTokenOptions{Name: "x", Scopes: []Scope{"apps:everything"}})
	wantCode(t, err, skerry.CodeInvalid)
	if who, err := p.AuthenticateBasic(t.Context(), "ada", text, ""); err != nil || who.Token != "ci" {
		t.Errorf("%+v %v", who, err)
	}
	_, err = p.AuthenticateBasic(t.Context(), "bob", text, "")
	wantCode(t, err, skerry.CodeUnauthorized)
	c.pass(time.Hour + time.Second)
	_, err = p.Authenticate(text)
	wantCode(t, err, skerry.CodeUnauthorized)
	if err := p.DeleteAccessToken(t.Context(), "ada", tok.Name); err != nil {
		t.Fatal(err)
	}
	wantCode(t, p.DeleteAccessToken(t.Context(), "ada", tok.ID), skerry.CodeNotFound)
}

func TestBasicPasswordIsForgottenWithTheOldOne(t *testing.T) {
	p, _, _ := newPeople(t)
	if _, err := p.AuthenticateBasic(t.Context(), "ada", "correct horse", ""); err != nil {
		t.Fatal(err)
	}
	pw := "a new password"
	if _, err := p.ChangeUser(t.Context(), "ada", UserChange{Password: &pw}); err != nil {
		t.Fatal(err)
	}
	_, err := p.AuthenticateBasic(t.Context(), "ada", "correct horse", "")
	wantCode(t, err, skerry.CodeUnauthorized)
}

// A password that is changed while it is being checked is forgotten all the same.
func TestBasicPasswordChangedMeanwhile(t *testing.T) {
	p, _, _ := newPeople(t)
	old := p.users["ada"].Hash
	pw := "a new password"
	if _, err := p.ChangeUser(t.Context(), "ada", UserChange{Password: &pw}); err != nil {
		t.Fatal(err)
	}
	p.basics.keep(p.cfg.Now(), "ada", "correct horse", old) // the check that had begun before
	_, err := p.AuthenticateBasic(t.Context(), "ada", "correct horse", "")
	wantCode(t, err, skerry.CodeUnauthorized)
}

// TestSessionsThatEndedMeanwhile: what ended while nobody served goes from the store with the next login, like everything that ended: else
// it stays there for ever, and with it what an older program would not know of it.
func TestSessionsThatEndedMeanwhile(t *testing.T) {
	p, st, c := newPeople(t)
	login(t, p)
	if _, err := p.loginOutside(t.Context(), &outsider{issuer: "i", subject: "1", grants: adminGrants(), setup: "old"}, ""); err != nil {
		t.Fatal(err)
	}
	kept := func() int {
		list, _, err := st.List(t.Context(), peopleRecords+recSession)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	p = people(t, st, c) // without the provider
	login(t, p)
	if n := kept(); n != 2 {
		t.Errorf("%d sessions are kept, want those of ada", n)
	}
	c.pass(SessionLife)
	p = people(t, st, c)
	login(t, p)
	if n := kept(); n != 1 {
		t.Errorf("%d sessions are kept, want the last one", n)
	}
}

// Who has the old password gets nothing by it any more, also if it was checked a moment before it was changed.
func TestLoginPasswordChangedMeanwhile(t *testing.T) {
	for name, enter := range map[string]func(*People, *Principal) error{
		"login": func(p *People, _ *Principal) error {
			_, err := p.Login(t.Context(), Credentials{User: "ada", Password: "correct horse"})
			return err
		},
		"totp": func(p *People, who *Principal) error {
			_, err := p.EnrolTOTP(t.Context(), who, "correct horse", "")
			return err
		},
		"password": func(p *People, who *Principal) error {
			return p.ChangePassword(t.Context(), who, "correct horse", "of the thief", "")
		},
	} {
		p, _, _ := newPeople(t)
		p.cfg.SealKey = make([]byte, 32)
		who, err := p.Authenticate(login(t, p).Access)
		if err != nil {
			t.Fatal(err)
		}
		changed := *p.users["ada"]
		changed.Hash = quick().hash("a new password")
		hashing := func() bool {
			runtime.Gosched()
			p.hash.mu.Lock()
			defer p.hash.mu.Unlock()
			return len(p.hash.waiting) > 0
		}
		p.change.Lock()
		p.hash.slot <- struct{}{}
		done := make(chan error, 1)
		go func() { done <- enter(p, who) }()
		for !hashing() {
		}
		<-p.hash.slot
		for hashing() { // until it was checked; what follows waits for change
		}
		if err := p.putUserLocked(t.Context(), &changed); err != nil {
			t.Fatal(err)
		}
		p.change.Unlock()
		if err := <-done; err == nil {
			t.Errorf("%s: the old password is good", name)
		}
	}
}

// What somebody watches or runs ends with the grant that allowed it.
func TestAliveEndsWithTheGrant(t *testing.T) {
	p, _, _ := newPeople(t)
	grants := []Grant{{RoleDeveloper, "acme", Any}, {RoleViewer, "other", Any}}
	if _, err := p.CreateUser(t.Context(), NewUser{Name: "bob", Password: "battery staple", Grants: grants}); err != nil {
		t.Fatal(err)
	}
	tk, err := p.Login(t.Context(), Credentials{User: "bob", Password: "battery staple"})
	if err != nil {
		t.Fatal(err)
	}
	who, err := p.Authenticate(tk.Access)
	if err != nil || !p.Alive(who) {
		t.Fatal(err)
	}
	more := append(grants, Grant{RoleViewer, "third", Any})
	if _, err := p.ChangeUser(t.Context(), "bob", UserChange{Grants: &more}); err != nil || !p.Alive(who) {
		t.Errorf("one more grant ended it: %v", err)
	}
	fewer := grants[1:]
	if _, err := p.ChangeUser(t.Context(), "bob", UserChange{Grants: &fewer}); err != nil || p.Alive(who) {
		t.Errorf("it lives on without the grant: %v", err)
	}
}

func TestLastAdminStays(t *testing.T) {
	p, _, _ := newPeople(t)
	yes, none := true, []Grant{}
	_, err := p.ChangeUser(t.Context(), "ada", UserChange{Disabled: &yes})
	wantCode(t, err, skerry.CodeConflict)
	_, err = p.ChangeUser(t.Context(), "ada", UserChange{Grants: &none})
	wantCode(t, err, skerry.CodeConflict)
	wantCode(t, p.DeleteUser(t.Context(), "ada"), skerry.CodeConflict)
	if _, err := p.CreateUser(t.Context(), NewUser{Name: "eve", Password: "battery staple", Grants: adminGrants()}); err != nil {
		t.Fatal(err)
	}
	tk := login(t, p)
	if err := p.DeleteUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	_, err = p.Authenticate(tk.Access)
	wantCode(t, err, skerry.CodeUnauthorized)
}

func TestBadUsers(t *testing.T) {
	p, _, _ := newPeople(t)
	for name, n := range map[string]NewUser{
		"name":     {Name: "Ada!", Password: "long enough"},
		"short":    {Name: "bob", Password: "short"},
		"long":     {Name: "bob", Password: strings.Repeat("x", maxPassword+1)},
		"utf8":     {Name: "bob", Password: "0123456789\xff"},
		"role":     {Name: "bob", Password: "long enough", Grants: []Grant{{"king", Any, Any}}},
		"org":      {Name: "bob", Password: "long enough", Grants: []Grant{{RoleViewer, "A B", Any}}},
		"no org":   {Name: "bob", Password: "long enough", Grants: []Grant{{RoleViewer, "", Any}}},
		"too many": {Name: "bob", Password: "long enough", Grants: make([]Grant, maxUserGrants+1)},
	} {
		if _, err := p.CreateUser(t.Context(), n); err == nil || codeOf(err) != skerry.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := p.CreateUser(t.Context(), NewUser{Name: "ada", Password: "long enough"})
	wantCode(t, err, skerry.CodeConflict)
}

func TestBootstrap(t *testing.T) {
	st, _ := store.Open(t.Context(), "memory:", store.Options{})
	defer st.Close()
	p := people(t, st, &clock{time.Now()})
	file := filepath.Join(t.TempDir(), "data", "admin-password")
	if made, err := p.Bootstrap(t.Context(), file); !made || err != nil {
		t.Fatal(made, err)
	}
	fi, err := os.Stat(file)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatal(fi, err)
	}
	pw, _ := os.ReadFile(file)
	if _, err := p.Login(t.Context(), Credentials{User: AdminUser, Password: strings.TrimSpace(string(pw))}); err != nil {
		t.Fatal(err)
	}
	if made, err := p.Bootstrap(t.Context(), file); made || err != nil {
		t.Fatal(made, err)
	}
	off := false
	if _, err := p.ChangeUser(t.Context(), AdminUser, UserChange{Disabled: &off}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the password still works, and its file is gone: %v", err)
	}
	// A password that no longer works has no business on the disk, also after another start.
	p = people(t, st, &clock{time.Now()})
	if _, err := p.Bootstrap(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	other := "another long one"
	if _, err := p.ChangeUser(t.Context(), AdminUser, UserChange{Password: &other}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of the first password is there: %v", err)
	}
}

func TestGrantsAreForOrganisationAndCluster(t *testing.T) {
	dev := &Principal{User: "d", Grants: []Grant{{RoleDeveloper, "acme", "harbour"}, {RoleViewer, "acme", Any}}}
	for _, c := range []struct {
		s            Scope
		org, cluster string
		want         bool
	}{
		{ScopeAppsWrite, "acme", "harbour", true}, {ScopeAppsWrite, "acme", "hill", false}, {ScopeAppsWrite, "acme", "", false},
		{ScopeAppsWrite, "other", "harbour", false}, {ScopeAppsWrite, "", "harbour", false}, {ScopeAppsRead, "acme", "hill", true},
		{ScopeAppsRead, "acme", "", true}, {ScopeAppsRead, "other", "", false}, {ScopeWorkersRead, "acme", "harbour", false},
	} {
		if got := dev.May(c.s, c.org, c.cluster); got != c.want {
			t.Errorf("%s of %q at %q: %v", c.s, c.org, c.cluster, got)
		}
	}
	if (*Principal)(nil).May(ScopeSelf, "", "") || (*Principal)(nil).Somewhere(ScopeAppsRead) {
		t.Error("nobody may do something")
	}
	if g, err := ParseGrant("developer:acme"); err != nil || g != (Grant{RoleDeveloper, "acme", Any}) {
		t.Error(g, err)
	}
	for _, text := range []string{"admin", "developer:", "viewer::harbour"} {
		if g, err := ParseGrant(text); err == nil || !strings.Contains(err.Error(), "names no organisation") {
			t.Errorf("%q is %v, %v", text, g, err)
		}
	}
	if g, err := ParseGrant("admin:*"); err != nil || g != (Grant{RoleAdmin, Any, Any}) {
		t.Errorf("%v, %v", g, err)
	}
	if _, err := ParseGrant("a:b:c:d"); err == nil {
		t.Error("four parts")
	}
}

func TestAuditIsKeptWithinLimits(t *testing.T) {
	st, _ := store.Open(t.Context(), "memory:", store.Options{})
	defer st.Close()
	c := &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	open := func() *People {
		p, err := OpenPeople(t.Context(), PeopleConfig{Site: "root", Store: st, Argon2: quick(), Now: c.Now, Audit: AuditLimits{Records: 5, Age: 24 * time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := open()
	for range 8 {
		p.Audit(t.Context(), AuditRecord{User: "ada", Operation: "apply-app", Result: "ok"})
	}
	p = open()
	p.Audit(t.Context(), AuditRecord{User: "bob", Operation: "login", Result: "unauthorized"})
	list, err := p.AuditRecords(t.Context(), 0, nil)
	if err != nil || len(list) != 5 || list[4].User != "bob" || list[4].Seq != 9 {
		t.Fatalf("%+v %v", list, err)
	}
	c.pass(25 * time.Hour)
	p.Audit(t.Context(), AuditRecord{User: "eve"})
	if list, _ = p.AuditRecords(t.Context(), 0, nil); len(list) != 1 || list[0].User != "eve" {
		t.Fatalf("%+v", list)
	}
}

// Whoever asks from one address, or one network of 64 bits, takes a part of the places; many take all but the machine's own.
func TestHashingIsBounded(t *testing.T) {
	h := newHashers()
	h.slot <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	began := 0
	wait := func(addr string, n int) {
		for range n {
			began++
			go func() { errs <- h.do(ctx, addr, func() {}) }()
		}
		for {
			h.mu.Lock()
			sum := 0
			for _, n := range h.waiting {
				sum += n
			}
			h.mu.Unlock()
			if sum == began {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	wait("2001:db8::1", maxHashSource-1)
	wait("2001:db8::2", 1)
	wantCode(t, h.do(ctx, "2001:db8::3", func() {}), skerry.CodeRateLimited)
	for i := range maxHashWaiting/maxHashSource - 1 {
		wait(fmt.Sprintf("192.0.2.%d", i), maxHashSource)
	}
	wantCode(t, h.do(ctx, "198.51.100.1", func() {}), skerry.CodeRateLimited)
	wait("127.0.0.1", 1)
	wait("::ffff:127.0.0.1", 1)
	wait(ownSource, maxHashSource-2)
	wantCode(t, h.do(ctx, "::1", func() {}), skerry.CodeRateLimited)
	cancel()
	for range began {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if len(h.waiting) != 0 || h.others != 0 {
		t.Errorf("places are still taken: %v, %d", h.waiting, h.others)
	}
}

func FuzzAuthenticate(f *testing.F) {
	st, _ := store.Open(context.Background(), "memory:", store.Options{})
	p, err := OpenPeople(context.Background(), PeopleConfig{Site: "root", Store: st, Argon2: quick()})
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", "a.b.c", "ska1.x.y", "skr1.x.y", "eyJhbGciOiJFZERTQSIsInR5cCI6IkpXVCJ9.e30.AA", "eyJhbGciOiJub25lIn0.e30."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if who, err := p.Authenticate(s); err == nil {
			t.Fatalf("%q is %+v", s, who)
		}
		if _, err := p.Refresh(context.Background(), s, ""); err == nil {
			t.Fatalf("%q refreshes", s)
		}
	})
}
