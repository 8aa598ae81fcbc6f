package auth_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/storetest"
	"skerry.dev/skerry/wire"
)

// clock is a wall clock that tests move.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// joinServer is an authority behind a real TLS listener that serves joins only.
type joinServer struct {
	*auth.Authority
	t     *testing.T
	store store.Store
	clock *clock
	addr  string
	mu    sync.Mutex // guards Authority against the listener while it is reopened
}

func newJoinServer(t *testing.T, tier wire.Tier) *joinServer {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	o := &joinServer{t: t, store: st, clock: &clock{t: time.Now()}}
	o.reopen(tier)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.addr = l.Addr().String()
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			o.mu.Lock()
			a := o.Authority
			o.mu.Unlock()
			cfg := a.ServerTLS()
			cfg.NextProtos = []string{"skerry-join/1"}
			tc := tls.Server(conn, cfg)
			if tc.HandshakeContext(context.Background()) == nil {
				a.ServeJoin(context.Background(), tc)
			}
			tc.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return o
}

func (o *joinServer) reopen(tier wire.Tier) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	o.Authority, err = auth.OpenAuthority(o.t.Context(), auth.AuthorityConfig{Site: "harbour", Tier: tier, Store: o.store, Now: o.clock.now})
	if err != nil {
		o.t.Fatal(err)
	}
}

func (o *joinServer) token(opt auth.TokenOptions) string {
	o.t.Helper()
	text, _, err := o.CreateToken(o.t.Context(), opt)
	if err != nil {
		o.t.Fatal(err)
	}
	return text
}

func (o *joinServer) dialing(machine string) auth.Dialing {
	return auth.Dialing{Addrs: []string{o.addr}, Machine: machine, Boot: "b"}
}

func (o *joinServer) enter(dir, token, name string) (*auth.Member, error) {
	return auth.Enter(o.t.Context(), auth.Entry{Dialing: o.dialing("machine-" + filepath.Base(dir)), Dir: dir, Token: token, Name: name})
}

func refused(t *testing.T, err error, code wire.RefuseCode, words ...string) {
	t.Helper()
	var r *wire.Refuse
	if !errors.As(err, &r) || r.Code != code {
		t.Fatalf("got %v, want a refusal %q", err, code)
	}
	if r.Hint == "" {
		t.Errorf("%q has no hint", r.Reason)
	}
	for _, w := range words {
		if !strings.Contains(r.Error(), w) {
			t.Errorf("%q does not mention %q", r.Error(), w)
		}
	}
}

func TestJoinKeepsIdentity(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	dir := filepath.Join(t.TempDir(), "w1")
	if _, err := auth.OpenMember(dir); !errors.Is(err, auth.ErrNotJoined) {
		t.Fatalf("an empty directory: %v", err)
	}
	m, err := o.enter(dir, o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	again, err := auth.OpenMember(dir)
	if err != nil || again.Name() != "w1" || again.Tier() != wire.TierWorker || again.Site() != "harbour" || again.Counter() != 1 {
		t.Fatalf("%+v, %v", again, err)
	}
	for _, f := range []string{"key.pem", "identity.json"} {
		if st, err := os.Stat(filepath.Join(dir, f)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, st.Mode(), err)
		}
	}
	if l := o.List(); len(l) != 1 || l[0].Machine != "machine-w1" || l[0].Counter != 1 {
		t.Errorf("enrolled: %+v", l)
	}
	recs, _, _ := o.store.List(t.Context(), "")
	for _, r := range recs {
		if strings.Contains(r.Key, "token/") && strings.Contains(string(r.Value), "skt1") {
			t.Error("the store holds a token's text")
		}
	}
	if _, err := o.enter(dir, o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w2"); err == nil || !strings.Contains(err.Error(), "joined site") {
		t.Errorf("joining twice: %v", err)
	}
	for range 3 {
		if err := m.Renew(t.Context(), o.dialing("machine-w1")); err != nil {
			t.Fatal(err)
		}
	}
	o.reopen(wire.TierCluster) // enrolments and CA outlive the process
	if err := m.Renew(t.Context(), o.dialing("machine-w1")); err != nil || m.Counter() != 5 {
		t.Errorf("counter %d, %v", m.Counter(), err)
	}
}

func TestTokenRefusals(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	dirs := t.TempDir()
	worker := auth.TokenOptions{Tier: wire.TierWorker}

	used := o.token(worker)
	if _, err := o.enter(filepath.Join(dirs, "w1"), used, "w1"); err != nil {
		t.Fatal(err)
	}
	_, err := o.enter(filepath.Join(dirs, "w2"), used, "w2")
	refused(t, err, wire.RefuseTokenUsed, `"w1"`, `"machine-w1"`, "skerry token create")

	late := o.token(auth.TokenOptions{Tier: wire.TierWorker, TTL: time.Minute})
	o.clock.add(2 * time.Minute)
	_, err = o.enter(filepath.Join(dirs, "w3"), late, "w3")
	refused(t, err, wire.RefuseTokenExpired, "skerry token create")

	// Somebody rewrites the role in the text; what the site has written down counts.
	fake := o.token(worker)
	_, err = o.Join(t.Context(), &wire.Join{Token: strings.Replace(fake, "worker", "cluster", 1), Tier: wire.TierCluster, Name: "c",
		CSR: csr(t)}, "")
	refused(t, err, wire.RefuseTokenRole, "worker", "cluster")

	wrong := o.token(worker)
	parts := strings.Split(wrong, ".")
	parts[3] = strings.Split(fake, ".")[3]
	_, err = o.enter(filepath.Join(dirs, "w4"), strings.Join(parts, "."), "w4")
	refused(t, err, wire.RefuseTokenUnknown)

	bound := o.token(auth.TokenOptions{Tier: wire.TierWorker, Name: "w5"})
	_, err = o.enter(filepath.Join(dirs, "w5"), bound, "other")
	refused(t, err, wire.RefuseTokenName, `"w5"`, `"other"`)
	if m, err := o.enter(filepath.Join(dirs, "w5"), bound, ""); err != nil || m.Name() != "w5" {
		t.Errorf("bound name: %v", err)
	}

	_, err = o.enter(filepath.Join(dirs, "second"), o.token(worker), "w1")
	refused(t, err, wire.RefuseNameTaken, `"w1"`, `"machine-w1"`, "--replace")

	for _, bad := range []string{"", "x", "skt1.worker.a.b", wrong[:len(wrong)-3], strings.Replace(wrong, "worker", "king", 1), strings.Repeat("x", 10000)} {
		_, err = o.enter(filepath.Join(dirs, "w6"), bad, "w6")
		refused(t, err, wire.RefuseMalformed)
	}

	other := newJoinServer(t, wire.TierCluster)
	if _, err = other.enter(filepath.Join(dirs, "w7"), wrong, "w7"); err == nil || !strings.Contains(err.Error(), "not the site") {
		t.Errorf("a token of another site: %v", err)
	}
	for _, opt := range []auth.TokenOptions{{Tier: wire.TierCluster}, {Tier: "king"}, {Tier: wire.TierWorker, TTL: -1}, {Tier: wire.TierWorker, Replace: true},
		{Tier: wire.TierWorker, Name: "Not Valid"}, {Tier: wire.TierWorker, TTL: 1000 * time.Hour}} {
		if _, _, err := o.CreateToken(t.Context(), opt); err == nil {
			t.Errorf("token %+v was made", opt)
		}
	}
}

func TestReplaceAndRevoke(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	dirs := t.TempDir()
	old, err := o.enter(filepath.Join(dirs, "old"), o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := o.enter(filepath.Join(dirs, "new"), o.token(auth.TokenOptions{Tier: wire.TierWorker, Name: "w1", Replace: true}), "")
	if err != nil {
		t.Fatal(err)
	}
	refused(t, old.Renew(t.Context(), o.dialing("x")), wire.RefuseRevoked)
	if err := fresh.Renew(t.Context(), o.dialing("x")); err != nil {
		t.Error(err)
	}
	if err := o.Revoke(t.Context(), wire.TierWorker, "w1", "ada", "stolen"); err != nil {
		t.Fatal(err)
	}
	refused(t, fresh.Renew(t.Context(), o.dialing("x")), wire.RefuseRevoked, "new token")
	o.reopen(wire.TierCluster)
	refused(t, fresh.Renew(t.Context(), o.dialing("x")), wire.RefuseRevoked)
	if _, err := o.enter(filepath.Join(dirs, "third"), o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1"); err != nil {
		t.Errorf("the name is free: %v", err)
	}
	if len(o.Revocations()) != 2 || len(o.List()) != 1 {
		t.Errorf("%d revoked, %d enrolled", len(o.Revocations()), len(o.List()))
	}
}

func TestExpiredMayOnlyRenew(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	m, err := o.enter(filepath.Join(t.TempDir(), "w1"), o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	id := o.identity(t, m)
	if err := o.Admit(t.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	o.clock.add(400 * 24 * time.Hour) // a year in a cupboard
	refused(t, o.Admit(t.Context(), id, nil), wire.RefuseExpired)
	if err := m.Renew(t.Context(), o.dialing("m")); err != nil {
		t.Fatal(err)
	}
	if err := o.Admit(t.Context(), o.identity(t, m), nil); err != nil {
		t.Error(err)
	}
	o.clock.add(-50 * 365 * 24 * time.Hour) // the parent wakes up in the seventies
	if err := o.Admit(t.Context(), o.identity(t, m), nil); err != nil {
		t.Errorf("a certificate of the future: %v", err)
	}
	if err := m.Renew(t.Context(), o.dialing("m")); err != nil {
		t.Errorf("renewal in the seventies: %v", err)
	}
}

// identity reads a member's certificate as the server does.
func (o *joinServer) identity(t *testing.T, m *auth.Member) wire.PeerIdentity {
	t.Helper()
	cfg, err := m.TLS()
	if err != nil {
		t.Fatal(err)
	}
	leaf := cfg.Certificates[0].Leaf
	id, err := o.Identify(tls.ConnectionState{PeerCertificates: append(nilCerts(), leaf)})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestClonedDirectory(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	dirs := t.TempDir()
	orig, copied := filepath.Join(dirs, "orig"), filepath.Join(dirs, "copy")
	m, err := o.enter(orig, o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(orig)); err != nil {
		t.Fatal(err)
	}
	c, err := auth.OpenMember(copied)
	if err != nil {
		t.Fatal(err)
	}
	cloneID := o.identity(t, c)
	if err := m.Renew(t.Context(), o.dialing("board-a")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		refused(t, c.Renew(t.Context(), o.dialing("board-b")), wire.RefuseClone, `"board-a"`, `"board-b"`, "`skerry member release w1`")
	}
	refused(t, o.Admit(t.Context(), cloneID, nil), wire.RefuseClone)
	refused(t, o.Admit(t.Context(), o.identity(t, m), &wire.Hello{Machine: "board-b"}), wire.RefuseClone)
	if err := o.Admit(t.Context(), o.identity(t, m), &wire.Hello{Machine: "board-a"}); err != nil {
		t.Errorf("the original is out: %v", err)
	}
	if err := m.Renew(t.Context(), o.dialing("board-a")); err != nil {
		t.Errorf("the original cannot renew: %v", err)
	}
	if q := o.List()[0].Quarantine; q == nil || q.First != "board-a" || q.Later != "board-b" {
		t.Errorf("quarantine %+v", q)
	}
	if err := o.Release(t.Context(), wire.TierWorker, "w1"); err != nil || o.List()[0].Quarantine != nil {
		t.Errorf("release: %v", err)
	}
}

func TestLostAnswers(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	dir := filepath.Join(t.TempDir(), "w1")
	token := o.token(auth.TokenOptions{Tier: wire.TierWorker})
	lossy := func(n int) auth.Dialing { // the request arrives, the answer does not
		d := o.dialing("board")
		d.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := net.Dial("tcp", addr)
			return &deaf{Conn: c, left: n}, err
		}
		return d
	}
	for n := 200; ; n += 60 { // cut after more and more bytes of answers
		m, err := auth.Enter(t.Context(), auth.Entry{Dialing: lossy(n), Dir: dir, Token: token, Name: "w1"})
		if err != nil {
			continue
		}
		for k := 200; ; k += 20 {
			if err := m.Renew(t.Context(), lossy(k)); err == nil {
				break
			}
			if k%100 == 0 { // and the agent restarts in between
				if m, err = auth.OpenMember(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
		break
	}
	if e := o.List()[0]; e.Quarantine != nil {
		t.Errorf("taken for a clone: %+v", e.Quarantine)
	}
}

// deaf hears only the first bytes.
type deaf struct {
	net.Conn
	left int
}

func (d *deaf) Read(b []byte) (int, error) {
	if d.left <= 0 {
		d.Conn.Close()
		return 0, errors.New("cut off")
	}
	n, err := d.Conn.Read(b[:min(len(b), d.left)])
	d.left -= n
	return n, err
}

func TestNextRenewal(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	m, err := o.enter(filepath.Join(t.TempDir(), "w1"), o.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	at := m.NextRenewal(now, 0).Sub(now)
	if at < 14*time.Hour || at > 18*time.Hour {
		t.Errorf("renews after %s of 24 h", at)
	}
	if d := m.NextRenewal(now, 3).Sub(now); d != 4*time.Second {
		t.Errorf("third failure waits %s", d)
	}
	if d := m.NextRenewal(now, 99).Sub(now); d != 5*time.Minute {
		t.Errorf("many failures wait %s", d)
	}
	past := now.Add(-30 * 365 * 24 * time.Hour)
	if got := m.NextRenewal(past, 0); !got.Equal(past) {
		t.Errorf("in the past: %s", got)
	}
}

func TestRootCertifiesSiteCA(t *testing.T) {
	root, cluster := newJoinServer(t, wire.TierRoot), newJoinServer(t, wire.TierCluster)
	var request []byte // what the cluster sent
	d := root.dialing("m")
	d.Site = cluster.Authority
	m, err := auth.Enter(t.Context(), auth.Entry{Dialing: d, Dir: filepath.Join(t.TempDir(), "c"),
		Token: root.token(auth.TokenOptions{Tier: wire.TierCluster}), Name: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	cross := parse(t, m.SiteCertificate())
	if err := cross.CheckSignatureFrom(parseDER(t, root.CA())); err != nil || !cross.IsCA {
		t.Errorf("cross certificate: %v", err)
	}
	if !bytes.Equal(cross.RawSubjectPublicKeyInfo, parseDER(t, cluster.CA()).RawSubjectPublicKeyInfo) {
		t.Error("another key was certified")
	}
	// What the site issues is trusted by who knows the root alone.
	w, err := cluster.enter(filepath.Join(t.TempDir(), "w"), cluster.token(auth.TokenOptions{Tier: wire.TierWorker}), "w1")
	if err != nil {
		t.Fatal(err)
	}
	conf, err := w.TLS()
	if err != nil {
		t.Fatal(err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(parseDER(t, root.CA()))
	between.AddCert(cross)
	leaf := parseDER(t, conf.Certificates[0].Certificate[0])
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
		t.Errorf("a worker's certificate does not lead to the root: %v", err)
	}

	// A renewal certifies it again.
	if err := m.Renew(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	// Another cluster gets nothing certified that it does not hold the key of.
	if request, err = cluster.SiteRequest(m.PublicKey()); err != nil {
		t.Fatal(err)
	}
	_, key, _ := ed25519.GenerateKey(nil)
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	for what, siteCA := range map[string][]byte{"its certificate": cluster.CA(), "a copied request": request, "nonsense": []byte("nonsense")} {
		_, err := root.Join(t.Context(), &wire.Join{Token: root.token(auth.TokenOptions{Tier: wire.TierCluster}), Tier: wire.TierCluster,
			Name: "reef", CSR: csr, SiteCA: siteCA}, "")
		var r *wire.Refuse
		if !errors.As(err, &r) || r.Code != wire.RefuseMalformed {
			t.Errorf("%s as proof: %v", what, err)
		}
	}
	if len(root.List()) != 1 {
		t.Error("who was refused is enrolled")
	}
}

// Who has copied a data directory and the token that was used to make it gets no further with the token than with the
// directory.
func TestUsedTokenOfAClone(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	dirs := t.TempDir()
	orig, copied := filepath.Join(dirs, "orig"), filepath.Join(dirs, "copy")
	token := o.token(auth.TokenOptions{Tier: wire.TierWorker})
	m, err := o.enter(orig, token, "w1")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(orig)); err != nil {
		t.Fatal(err)
	}
	again := func(machine string) error {
		t.Helper()
		if err := os.Remove(filepath.Join(copied, "identity.json")); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		_, err := auth.Enter(t.Context(), auth.Entry{Dialing: o.dialing(machine), Dir: copied, Token: token, Name: "w1"})
		return err
	}
	refused(t, again("another"), wire.RefuseTokenUsed)
	if err := again("machine-orig"); err != nil { // the answer may have been lost
		t.Errorf("the same machine may not try again: %v", err)
	}
	if err := m.Renew(t.Context(), o.dialing("machine-orig")); err == nil {
		t.Error("a counter that was used up was renewed")
	}
	if o.List()[0].Quarantine == nil {
		t.Fatal("no quarantine")
	}
	refused(t, again("machine-orig"), wire.RefuseTokenUsed)
	if o.List()[0].Quarantine == nil {
		t.Error("a token that was used up ended the quarantine")
	}
}

// Tokens of long ago do not pile up.
func TestOldTokensGo(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	old := o.token(auth.TokenOptions{Tier: wire.TierWorker})
	o.clock.add(20 * 24 * time.Hour)
	o.token(auth.TokenOptions{Tier: wire.TierWorker})
	if list, err := o.Tokens(t.Context()); err != nil || len(list) != 2 {
		t.Fatalf("%d tokens: %v", len(list), err)
	}
	_, err := o.enter(filepath.Join(t.TempDir(), "w"), old, "w1")
	refused(t, err, wire.RefuseTokenExpired)
	o.clock.add(11 * 24 * time.Hour)
	o.token(auth.TokenOptions{Tier: wire.TierWorker})
	if list, err := o.Tokens(t.Context()); err != nil || len(list) != 2 {
		t.Fatalf("%d tokens: %v", len(list), err)
	}
}

// A device says what it wants to be: one that is started as a worker does not become a cluster because it was given a cluster's token,
// nor the other way round, and the token is not used up for it.
func TestTokenOfAnotherRole(t *testing.T) {
	for _, x := range []struct{ of, as wire.Tier }{{wire.TierCluster, wire.TierWorker}, {wire.TierWorker, wire.TierCluster}, {wire.TierSuccessor, wire.TierWorker}} {
		o := newJoinServer(t, x.of.Parent())
		token := o.token(auth.TokenOptions{Tier: x.of, Name: "x"})
		dir := filepath.Join(t.TempDir(), "d")
		_, err := auth.Enter(t.Context(), auth.Entry{Dialing: o.dialing("m"), Dir: dir, Token: token, Tier: x.as, Name: "x"})
		refused(t, err, wire.RefuseTokenRole, "is for a "+string(x.of), "a "+string(x.as)+" wants", "--role "+string(x.as))
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a %s left an identity: %v", x.as, err)
		}
		if x.of == wire.TierCluster {
			continue // it needs a site's own authority to join
		}
		if m, err := auth.Enter(t.Context(), auth.Entry{Dialing: o.dialing("m"), Dir: dir, Token: token, Tier: x.of, Name: "x"}); err != nil || m.Tier() != x.of {
			t.Errorf("the token is used up: %v", err)
		}
	}
}

// TestWritesThatMayBeKept: a revocation or a renewal of which nobody knows whether it is kept counts as the store has it, and can be
// tried again: the authority goes on in the same process when that leads again.
func TestWritesThatMayBeKept(t *testing.T) {
	o := newJoinServer(t, wire.TierCluster)
	u := &storetest.Unsure{Store: o.store}
	o.store = u
	o.reopen(wire.TierCluster)
	enter := func(name string) (*auth.Member, wire.PeerIdentity) {
		m, err := o.enter(t.TempDir(), o.token(auth.TokenOptions{Tier: wire.TierWorker}), name)
		if err != nil {
			t.Fatal(err)
		}
		return m, o.identity(t, m)
	}
	_, stolen := enter("stolen")
	other, _ := enter("other")
	u.On = true
	if err := o.Revoke(t.Context(), wire.TierWorker, "stolen", "ada", "stolen"); !errors.Is(err, store.ErrDeposed) {
		t.Fatalf("it does not say that it does not know: %v", err)
	}
	if err := other.Renew(t.Context(), o.dialing("x")); err == nil {
		t.Fatal("a renewal that may be lost is answered")
	}
	u.On = false
	refused(t, o.Admit(t.Context(), stolen, nil), wire.RefuseRevoked)
	if err := other.Renew(t.Context(), o.dialing("x")); err != nil {
		t.Errorf("renewed again: %v", err)
	}
}
