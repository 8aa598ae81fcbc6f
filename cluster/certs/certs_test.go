package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// site is the certificates of a site with a clock, and with a store that survives its restarts.
type site struct {
	t      *testing.T
	c      *Certs
	now    time.Time
	kv     map[string][]byte
	orders []Order // under way
}

func newSite(t *testing.T, p Policy) *site {
	if p.Directory == "" {
		p.Directory = "https://ca.example/dir"
	}
	return &site{t: t, c: New(p), now: time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC), kv: map[string][]byte{}}
}

func want(host, org string, order uint64) Want {
	return Want{Host: host, Org: org, App: skerry.AppKey{Namespace: org, Name: "shop"}, Order: order, Ports: Ports{TLS: true}}
}

func (s *site) keep(writes []wire.Write) {
	for _, w := range writes {
		if w.Value == nil {
			delete(s.kv, w.Key)
			continue
		}
		s.kv[w.Key] = w.Value
	}
}

// review does what is due, and gives the hosts that are ordered.
func (s *site) review() string {
	s.t.Helper()
	orders, writes, _ := s.c.Review(s.now)
	s.keep(writes)
	s.orders = append(s.orders, orders...)
	if faults := s.c.Audit(); len(faults) > 0 {
		s.t.Errorf("the books do not balance: faults %v", faults)
	}
	var out []string
	for _, o := range orders {
		out = append(out, o.Host)
	}
	return strings.Join(out, " ")
}

// until goes on to when something is due, again and again, until something is ordered or an end has come, and gives what is ordered.
func (s *site) until(end time.Time) string {
	s.t.Helper()
	for {
		if out := s.review(); out != "" {
			return out
		}
		due := s.c.Due()
		if due.IsZero() || due.After(end) {
			s.now = end
			return s.review()
		}
		if !due.After(s.now) {
			s.t.Fatalf("due at %v, which is not after %v", due, s.now)
		}
		s.now = due
	}
}

// done ends the oldest order.
func (s *site) done(r Result) string {
	s.t.Helper()
	if len(s.orders) == 0 {
		s.t.Fatal("no order is under way")
	}
	r.Host, r.Org = s.orders[0].Host, s.orders[0].Org
	s.orders = s.orders[1:]
	writes, _, why := s.c.Done(s.now, r)
	s.keep(writes)
	return why
}

// signed makes a certificate that begins now.
func (s *site) signed(host string, life time.Duration) Result {
	s.t.Helper()
	cert, key := pair(s.t, host, s.now, life)
	return Result{CertPEM: cert, KeyPEM: key}
}

func pair(t testing.TB, host string, now time.Time, life time.Duration) (cert, private []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now, NotAfter: now.Add(life), DNSNames: []string{host}}
	der, err := x509.CreateCertificate(rand.Reader, x, x, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
}

// restart has a process end without a word, and another one begin with what was stored.
func (s *site) restart(p Policy, wants ...Want) {
	s.t.Helper()
	s.c, s.orders = New(p), nil
	for key, value := range s.kv {
		if err := s.c.Load(value); err != nil || !strings.HasPrefix(key, Prefix) {
			s.t.Fatalf("record %s: %v", key, err)
		}
	}
	s.c.Start(s.now)
	s.c.SetWants(wants)
}

func (s *site) state(host, org string) string {
	v := s.c.State(host, org, skerry.AppKey{Namespace: org, Name: "shop"})
	return strings.TrimSuffix(string(v.State)+": "+v.Reason, ": ")
}

// TestRenewal orders a certificate at once, and anew before two thirds of its lifetime have passed, over restarts.
func TestRenewal(t *testing.T) {
	harbour := newSite(t, Policy{})
	shop := want("shop.example.org", "acme", 1)
	harbour.c.SetWants([]Want{shop})
	if got := harbour.review(); got != shop.Host {
		t.Fatalf("ordered at once: got %q, want %q", got, shop.Host)
	}
	if got := harbour.state(shop.Host, "acme"); got != "ordering" {
		t.Errorf("state: got %s, want ordering", got)
	}
	begin := harbour.now
	if why := harbour.done(harbour.signed(shop.Host, 90*24*time.Hour)); why != "" {
		t.Fatal(why)
	}
	harbour.review()
	if got := harbour.state(shop.Host, "acme"); got != "valid" || harbour.c.Serves(shop.Host, "acme") == nil {
		t.Errorf("state: got %s, serves %v, want valid and a certificate", got, harbour.c.Serves(shop.Host, "acme") != nil)
	}
	harbour.restart(harbour.c.Policy(), shop)
	if got := harbour.review(); got != "" || harbour.c.Serves(shop.Host, "acme") == nil {
		t.Errorf("after a restart: ordered %q, serves %v, want nothing ordered and a certificate", got, harbour.c.Serves(shop.Host,
			"acme") != nil)
	}
	if got := harbour.until(begin.AddDate(1, 0, 0)); got != shop.Host || harbour.now.Sub(begin) > 60*24*time.Hour ||
		harbour.now.Sub(begin) < 57*24*time.Hour {
		t.Errorf("renewal: %q after %v, want the host after 57 to 60 days", got, harbour.now.Sub(begin))
	}
	if harbour.c.Serves(shop.Host, "acme") == nil {
		t.Error("while it is ordered anew, no certificate is served, want the old one")
	}
	other := harbour.c.Policy()
	other.Directory = "https://other.example/dir"
	harbour.restart(other, shop)
	if got := harbour.until(harbour.now.Add(time.Hour)); got != shop.Host {
		t.Errorf("at another authority: ordered %q, want %q", got, shop.Host)
	}
}

// TestFailures has all orders fail: each is repeated later than the one before, as the authority asks, and by another challenge. What
// was served before is served until it ends.
func TestFailures(t *testing.T) {
	harbour := newSite(t, Policy{DNS: true})
	shop := want("shop.example.org", "acme", 1)
	harbour.c.SetWants([]Want{shop})
	harbour.review()
	if why := harbour.done(harbour.signed(shop.Host, 6*time.Hour)); why != "" {
		t.Fatal(why)
	}
	begin := harbour.now
	harbour.review() // from then on it is served
	// Its renewal is due after 4 h of 6: it is expiring once half of the time from there to its end is over, and not when it has ended.
	for at, want := range map[time.Duration]int{0: 0, 4*time.Hour + 50*time.Minute: 0, 5*time.Hour + time.Minute: 1} {
		if got := harbour.c.Expiring(begin.Add(at)); got != want {
			t.Errorf("expiring after %v: got %d, want %d", at, got, want)
		}
	}
	var gaps []time.Duration
	var kinds []string
	last := time.Time{}
	for range 6 {
		if harbour.until(begin.AddDate(0, 0, 2)) == "" {
			t.Fatal("nothing is ordered")
		}
		kinds = append(kinds, string(harbour.orders[0].Kinds[0]))
		if !last.IsZero() {
			gaps = append(gaps, harbour.now.Sub(last))
		}
		last = harbour.now
		harbour.done(Result{Why: "no: " + strings.Repeat("x", 1000)})
	}
	if !slices.IsSorted(gaps) || gaps[0] < 10*time.Second || gaps[4] < time.Hour {
		t.Errorf("pauses: got %v, want longer ones each time, from 10 s to an hour", gaps)
	}
	if got, want := strings.Join(kinds[:3], " "), "tls-alpn-01 dns-01 tls-alpn-01"; got != want {
		t.Errorf("challenges: got %s, want %s", got, want)
	}
	harbour.now = begin.Add(7 * time.Hour)
	harbour.review()
	if got := harbour.c.Serves(shop.Host, "acme"); got != nil {
		t.Error("a certificate that has ended is served, want none")
	}
	if got := harbour.c.Expiring(harbour.now); got != 0 {
		t.Errorf("expiring after the end: got %d, want 0", got)
	}
	if got := harbour.state(shop.Host, "acme"); !strings.HasPrefix(got, "waiting: no: xxx") && !strings.HasPrefix(got, "ordering: no: xxx") ||
		len(got) > 500 {
		t.Errorf("state: got %s, want the reason", got)
	}
	if m := harbour.c.Metrics(); m.Failing != 1 || m.Valid != 0 || m.Failed != 6 || m.Issued != 1 || !m.Ends.Equal(begin.Add(6*time.Hour)) {
		t.Errorf("metrics: got %+v, want one that fails and ended at %v", m, begin.Add(6*time.Hour))
	}
	for len(harbour.orders) == 0 {
		harbour.until(harbour.now.AddDate(0, 0, 1))
	}
	harbour.done(Result{Why: "later", RetryAfter: 1000 * time.Hour, Unreachable: true})
	at := harbour.now
	if got := harbour.until(at.AddDate(0, 0, 3)); got == "" || harbour.now.Sub(at) != maxRetryAfter {
		t.Errorf("as the authority asks: ordered %q after %v, want it after %v", got, harbour.now.Sub(at), maxRetryAfter)
	}
	harbour.done(Result{Why: "nobody is there", Unreachable: true})
}

// TestStops has the process end during each order, as one would that an order makes crash.
func TestStops(t *testing.T) {
	s := newSite(t, Policy{OrdersPerHour: 1000})
	w := want("shop.example.org", "acme", 1)
	s.c.SetWants([]Want{w})
	var gaps []time.Duration
	last := s.now
	for range 6 {
		if s.until(s.now.Add(time.Hour)) == "" {
			t.Fatal("nothing is ordered")
		}
		gaps, last = append(gaps, s.now.Sub(last)), s.now
		s.restart(s.c.Policy(), w)
	}
	if !slices.IsSorted(gaps) || gaps[1] < 5*time.Second || gaps[5] < time.Minute {
		t.Errorf("pauses: got %v, want longer ones each time", gaps)
	}
}

// TestLimits has an organisation ask for more than it may: it uses up half of the site's orders, and others get theirs.
func TestLimits(t *testing.T) {
	harbour := newSite(t, Policy{HostsPerOrg: 20, OrdersPerHour: 10})
	var wants []Want
	for i := range 30 {
		wants = append(wants, want(fmt.Sprintf("h%02d.example.org", i), "greedy", uint64(i+1)))
	}
	wants = append(wants, want("shop.example.com", "modest", 100))
	harbour.c.SetWants(wants)
	var got []string
	end := harbour.now.Add(30 * time.Minute)
	for harbour.now.Before(end) {
		if out := harbour.until(end); out != "" {
			got = append(got, strings.Fields(out)...)
		}
		for len(harbour.orders) > 0 {
			if why := harbour.done(harbour.signed(harbour.orders[0].Host, 90*24*time.Hour)); why != "" {
				t.Fatal(why)
			}
		}
	}
	if want := "h00.example.org h01.example.org shop.example.com h02.example.org h03.example.org h04.example.org"; strings.Join(got,
		" ") != want {
		t.Errorf("orders in half an hour: got %s, want %s", strings.Join(got, " "), want)
	}
	if got := harbour.state("h05.example.org", "greedy"); !strings.Contains(got, "as many orders as the site allows") {
		t.Errorf("state of a host that waits: got %s", got)
	}
	if got := harbour.state("h20.example.org", "greedy"); !strings.Contains(got,
		"refused: organisation greedy has certificates for 20 hosts") {
		t.Errorf("state of one too many: got %s", got)
	}
	if got := harbour.state("h00.example.org", "modest"); !strings.Contains(got, "belongs to another organisation") {
		t.Errorf("state of another's host: got %s", got)
	}
	// Other hosts instead of these bring no more orders.
	for i := range 10 {
		harbour.c.SetWants([]Want{want(fmt.Sprintf("other%d.example.org", i), "greedy", uint64(200+i))})
		if got := harbour.review(); got != "" {
			t.Errorf("order of another host within the hour: got %s, want none", got)
		}
	}
	harbour.now = harbour.now.Add(time.Hour)
	if got := harbour.review(); got != "other9.example.org" {
		t.Errorf("an hour later: got %q, want other9.example.org", got)
	}
}

// TestSlots has the orders of one organisation not end: those of another go on beside them, and its own wait until one of them ends.
func TestSlots(t *testing.T) {
	harbour := newSite(t, Policy{})
	var wants []Want
	for i := range 6 {
		wants = append(wants, want(fmt.Sprintf("h%d.example.org", i), "greedy", uint64(i+1)))
	}
	wants = append(wants, want("a.example.com", "modest", 100), want("b.example.com", "third", 101), want("c.example.com", "last", 102))
	harbour.c.SetWants(wants)
	if got, want := harbour.review(), "h0.example.org h1.example.org a.example.com b.example.com"; got != want {
		t.Errorf("orders at once: got %s, want %s", got, want)
	}
	harbour.done(Result{Why: "nobody answers"})
	if got, want := harbour.review(), "c.example.com"; got != want {
		t.Errorf("when one has ended: got %s, want that of the organisation that had none: %s", got, want)
	}
	harbour.orders = harbour.orders[1:] // h1 hangs
	harbour.done(Result{Why: "no"})
	if got, want := harbour.review(), "h2.example.org"; got != want {
		t.Errorf("when one of another organisation has ended: got %s, want %s", got, want)
	}
}

// TestOwners never gives one organisation the key of another's certificate.
func TestOwners(t *testing.T) {
	harbour := newSite(t, Policy{})
	mine := want("shop.example.org", "one", 1)
	harbour.c.SetWants([]Want{mine})
	harbour.review()
	if why := harbour.done(harbour.signed(mine.Host, 90*24*time.Hour)); why != "" {
		t.Fatal(why)
	}
	harbour.c.SetWants(nil)
	harbour.review()
	if len(harbour.kv) != 1 {
		t.Errorf("records of a host that may come back: got %d, want 1", len(harbour.kv))
	}
	theirs := want("shop.example.org", "two", 2)
	harbour.c.SetWants([]Want{theirs})
	if got := harbour.review(); got != mine.Host || harbour.c.Serves(mine.Host, "two") != nil || harbour.c.Serves(mine.Host, "one") != nil {
		t.Errorf("the host of another organisation: ordered %q, want it ordered anew and not served", got)
	}
	// The order of the first one may still end.
	writes, _, _ := harbour.c.Done(harbour.now, Result{Host: mine.Host, Org: "one", CertPEM: []byte("x")})
	if len(writes) > 0 || harbour.c.Serves(mine.Host, "two") != nil {
		t.Error("an order of another organisation's counts")
	}
	harbour.c.SetWants(nil)
	for harbour.c.Due().After(harbour.now) {
		harbour.now = harbour.c.Due()
		harbour.review()
	}
	if len(harbour.kv) != 0 {
		t.Errorf("records that nobody wants any more: got %d, want none", len(harbour.kv))
	}
}

// TestPostpone orders nothing while nobody could answer.
func TestPostpone(t *testing.T) {
	s := newSite(t, Policy{})
	w := want("shop.example.org", "acme", 1)
	s.c.SetWants([]Want{w})
	s.c.Postpone("no worker has an ingress")
	if got := s.review(); got != "" || s.state(w.Host, "acme") != "waiting: no worker has an ingress" {
		t.Errorf("postponed: ordered %q, state %s, want none and the reason", got, s.state(w.Host, "acme"))
	}
	s.c.Postpone("")
	if got := s.review(); got != w.Host {
		t.Errorf("released: ordered %q, want %s", got, w.Host)
	}
}

// TestChallenges gives workers what they are to answer, and says once that all do.
func TestChallenges(t *testing.T) {
	harbour := newSite(t, Policy{})
	shop := want("shop.example.org", "acme", 1)
	if harbour.c.Challenged(shop.Host, &wire.IngressChallenge{Token: "t"}) {
		t.Error("a challenge without an order is taken")
	}
	harbour.c.SetWants([]Want{shop})
	harbour.review()
	harbour.c.Challenged(shop.Host, &wire.IngressChallenge{Host: shop.Host, Token: "t", Answer: "a"})
	if got := harbour.c.Challenges(shop.App); len(got) != 1 || got[0].Token != "t" || len(harbour.c.Challenges(skerry.AppKey{})) > 0 {
		t.Errorf("challenges: got %v, want t of this application alone", got)
	}
	answered := false
	all := func(token string) (some, all bool) { return answered && token == "t", answered && token == "t" }
	if got := harbour.c.Answered(all); len(got) > 0 {
		t.Errorf("answered: got %v, want none", got)
	}
	answered = true
	if got := fmt.Sprint(harbour.c.Answered(all), harbour.c.Answered(all)); got != "[t] []" {
		t.Errorf("answered: got %s, want t once", got)
	}
	harbour.done(Result{Why: "no"})
	if got := harbour.c.Challenges(shop.App); len(got) > 0 {
		t.Errorf("challenges after the order: got %v, want none", got)
	}
}

func TestKinds(t *testing.T) {
	ca := "https://ca.example/dir"
	for _, row := range []struct {
		policy Policy
		host   string
		at     Ports
		want   string
	}{
		{Policy{}, "shop.example.org", Ports{TLS: true}, "the site orders no certificates (tls: acme)"},
		{Policy{Directory: ca}, "shop.example.org", Ports{TLS: true}, "[tls-alpn-01]"},
		{Policy{Directory: ca}, "shop.example.org", Ports{HTTP: true, TLS: true}, "[http-01 tls-alpn-01]"},
		{Policy{Directory: ca, DNS: true}, "shop.example.org", Ports{HTTP: true, TLS: true}, "[http-01 tls-alpn-01 dns-01]"},
		{Policy{Directory: ca}, "shop.example.org", Ports{}, "nothing answers the authority for host shop.example.org"},
		{Policy{Directory: ca}, "*.example.org", Ports{HTTP: true, TLS: true}, "host *.example.org is proved by a DNS record alone"},
		{Policy{Directory: ca, DNS: true}, "*.example.org", Ports{HTTP: true, TLS: true}, "[dns-01]"},
		{Policy{Directory: ca}, "localhost", Ports{TLS: true}, "public authorities sign no name without a dot"},
		{Policy{Directory: ca, Domains: []string{"example.org", "a.b"}}, "shop.example.org", Ports{TLS: true}, "[tls-alpn-01]"},
		{Policy{Directory: ca, Domains: []string{"example.org"}}, "notexample.org", Ports{TLS: true},
			"the site orders no certificates for host notexample.org, only in example.org"},
	} {
		kinds, refused := row.policy.Kinds(row.host, row.at)
		got := fmt.Sprint(kinds)
		if refused != nil {
			got = refused.Text
		}
		if !strings.HasPrefix(got, row.want) || (refused != nil) == (len(kinds) > 0) {
			t.Errorf("%s: got %s, want %s", row.host, got, row.want)
		}
	}
}

func TestAskedBy(t *testing.T) {
	services := []spec.ServiceSpec{
		{Ingress: []spec.Ingress{{Host: "a.example.org", TLS: spec.TLSACME, Listen: 443}, {Host: "a.example.org", Path: "/x",
			TLS: spec.TLSACME, Listen: 8443}}},
		{Ingress: []spec.Ingress{{Host: "b.example.org", TLS: spec.TLSACME, Listen: 8443}, {Host: "c.example.org", Listen: 80}, {TLS: "mine",
			Listen: 443}}}}
	want := "[{a.example.org spec.services[0].ingress[0].tls {true true}} {b.example.org spec.services[1].ingress[0].tls {true false}}]"
	if got := fmt.Sprint(AskedBy(services)); got != want {
		t.Errorf("asked: got %s, want %s", got, want)
	}
}

// FuzzDone takes what an authority may send as a certificate.
func FuzzDone(f *testing.F) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	cert, key := pair(f, "shop.example.org", now, time.Hour)
	f.Add(cert, key)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"), key)
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		s := newSite(t, Policy{})
		s.c.SetWants([]Want{want("shop.example.org", "acme", 1)})
		s.review()
		why := s.done(Result{CertPEM: cert, KeyPEM: key})
		s.review()
		v := s.c.State("shop.example.org", "acme", skerry.AppKey{})
		if valid := v.State == view.CertificateValid; valid != (s.c.Serves("shop.example.org", "acme") != nil) || valid && (why != "" ||
			!v.NotAfter.After(s.now)) {
			t.Errorf("state %v with reason %q, want a certificate exactly when it is valid", v, why)
		}
	})
}

// FuzzRecord reads records.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"host":"a.b","org":"o","next":"2126-01-01T00:00:00Z","tried":["2026-01-01T00:00:00Z"],"underWay":true,"stopped":3}`))
	f.Add([]byte(`{"host":"a.b","org":"o","failed":-5,"stopped":-7,"certificate":"eA==","notAfter":"9999-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newSite(t, Policy{})
		if s.c.Load(data) != nil {
			return
		}
		s.c.Start(s.now)
		s.c.SetWants([]Want{want("a.b", "o", 1)})
		s.review()
		s.c.State("a.b", "o", skerry.AppKey{})
		s.c.Metrics()
	})
}

// TestReasonIsText keeps what an authority sends that is no text from going on as text: whoever decodes it would refuse all of it.
func TestReasonIsText(t *testing.T) {
	s := newSite(t, Policy{})
	s.c.SetWants([]Want{want("shop.example.org", "acme", 1)})
	s.review()
	if why := s.done(Result{Why: "it says \xff\xfe"}); !utf8.ValidString(why) || !strings.HasPrefix(why, "it says") {
		t.Errorf("reason: got %q, want text", why)
	}
	if got := s.c.State("shop.example.org", "acme", skerry.AppKey{}).Reason; !utf8.ValidString(got) {
		t.Errorf("reason shown: got %q, want text", got)
	}
}

// TestLimitOutlivesOwner counts the orders for a host that goes from one organisation to another and back: two of them could else have as
// many made as they like.
func TestLimitOutlivesOwner(t *testing.T) {
	s := newSite(t, Policy{OrdersPerHour: 6})
	made := 0
	for i := range 20 {
		org := fmt.Sprint("org", i%2)
		s.c.SetWants([]Want{want("shop.example.org", org, uint64(i+1))})
		if s.review() != "" {
			made++
			s.done(Result{Why: "no"})
		}
		s.now = s.now.Add(time.Second)
	}
	if made > 6 {
		t.Errorf("orders within 20 seconds: got %d, want at most 6", made)
	}
}
