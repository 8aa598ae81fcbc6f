package auth

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"time"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// Dialing says how a child reaches its parent to join or to renew.
type Dialing struct {
	Addrs   []string                                                 // host:port, tried in order
	Dial    func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
	Timeout time.Duration                                            // for each address; default 15 s
	Machine string                                                   // names the device for people
	Boot    string                                                   // this run of the agent
	Site    *Authority                                               // a cluster's own, whose CA the root certifies; nil for a worker
}

// Entry says who wants to join, with what.
type Entry struct {
	Dialing
	Dir     string // where key and identity are kept
	Token   string
	Tier    wire.Tier // what the device wants to be; empty: whatever the token is for
	Name    string    // may be empty if the token is bound to a name
	Version string
}

// Enter joins a site: it makes the device's key in Dir, proves the site's CA by the token's pin, and keeps the identity
// received. A refusal is a *wire.Refuse. Trying again after a lost answer is safe with the same directory.
func Enter(ctx context.Context, e Entry) (*Member, error) {
	text, err := parseToken(e.Token)
	if err != nil {
		return nil, err
	}
	if e.Tier != "" && text.tier != e.Tier { // before a key is made, and the token used up
		return nil, &wire.Refuse{Code: wire.RefuseTokenRole,
			Reason: fmt.Sprintf("the token is for a %s, and a %s wants to join with it", text.tier, e.Tier), Hint: newToken(e.Tier)}
	}
	if m, err := OpenMember(e.Dir); err == nil {
		return nil, fmt.Errorf("%s: this device has joined site %q as %s %q already (to join anew, stop it and delete the directory)",
			e.Dir, m.Site(), m.Tier(), m.Name())
	} else if !errors.Is(err, ErrNotJoined) {
		return nil, err
	}
	key, err := ensureKey(e.Dir)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: e.Name}}, key)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{joinProto},
		InsecureSkipVerify: true, // the CA is proven by the pin below
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := verifyPinned(cs, text)
			return err
		},
	}
	siteCA, err := e.siteRequest(key)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	req := &wire.Join{Token: text.String(), Tier: text.tier, Name: e.Name, CSR: csr, Machine: e.Machine, Boot: e.Boot,
		Version: e.Version, SiteCA: siteCA}
	answer, err := e.ask(ctx, cfg, req)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	if ca, err := x509.ParseCertificate(answer.CA); err != nil || pinOf(ca) != text.pin || answer.Tier != text.tier {
		return nil, errors.New("join: the answer is for another site or role")
	}
	m := &Member{dir: e.Dir, key: key}
	if err := m.keep(answer); err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	return m, nil
}

func verifyPinned(cs tls.ConnectionState, text tokenText) (wire.PeerIdentity, error) {
	if len(cs.PeerCertificates) < 2 || !cs.PeerCertificates[1].IsCA || pinOf(cs.PeerCertificates[1]) != text.pin {
		return wire.PeerIdentity{}, errors.New("this is not the site that the token is for (its CA differs from the token's pin); check the address")
	}
	return verifyParent(cs.PeerCertificates[1], cs, text.tier.Parent(), "")
}

// keep checks an answer, writes it down and takes it into use.
func (m *Member) keep(j *wire.Joined) error {
	id := identity{Tier: j.Tier, Name: j.Name, Site: j.Site, Cert: toPEM("CERTIFICATE", j.Certificate), CA: toPEM("CERTIFICATE", j.CA),
		Counter: j.Counter, Received: time.Now().UTC(), Life: int64(j.Life)}
	if len(j.SiteCert) > 0 {
		id.SiteCert = toPEM("CERTIFICATE", j.SiteCert)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.id
	oldCA, oldCert := m.ca, m.cert
	if err := m.use(id); err != nil {
		return err
	}
	if err := m.save(id); err != nil {
		m.id, m.ca, m.cert = old, oldCA, oldCert
		return err
	}
	return nil
}

// Renew gets the next certificate from the first address that answers. It works with an expired certificate too.
func (m *Member) Renew(ctx context.Context, d Dialing) error {
	m.renewing.Lock()
	defer m.renewing.Unlock()
	id := m.now()
	if id.Attempt == "" {
		// Kept before it is sent: should the answer be lost, the next try is known to be the same one.
		id.Attempt = randomText(10)
		if err := m.save(id); err != nil {
			return fmt.Errorf("renew: %w", err)
		}
		m.mu.Lock()
		m.id.Attempt = id.Attempt
		m.mu.Unlock()
	}
	cfg, err := m.TLS()
	if err != nil {
		return err
	}
	cfg.NextProtos = []string{joinProto}
	siteCA, err := d.siteRequest(m.key)
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	answer, err := d.ask(ctx, cfg, &wire.Renew{Counter: id.Counter, Attempt: id.Attempt, Machine: d.Machine, Boot: d.Boot, SiteCA: siteCA})
	if err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if answer.Name != id.Name || answer.Tier != id.Tier || answer.Site != id.Site || answer.Counter <= id.Counter {
		return errors.New("renew: the answer is for another identity")
	}
	m.mu.Lock()
	answer.CA = m.ca.Raw // the CA stays the one that the token named
	m.mu.Unlock()
	if err := m.keep(answer); err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	return nil
}

// PublicKey is the device's public key.
func (m *Member) PublicKey() crypto.PublicKey { return m.key.Public() }

// siteRequest is what a cluster sends to have its own CA certified.
func (d Dialing) siteRequest(device crypto.Signer) ([]byte, error) {
	if d.Site == nil {
		return nil, nil
	}
	return d.Site.ca.request(device.Public())
}

// ask puts one request to the first address that answers. A refusal ends the search: the site has spoken.
func (d Dialing) ask(ctx context.Context, cfg *tls.Config, req wire.Message) (*wire.Joined, error) {
	var errs []error
	for _, addr := range d.Addrs {
		j, err := d.askOne(ctx, addr, cfg, req)
		if err == nil {
			return j, nil
		}
		var refuse *wire.Refuse
		if errors.As(err, &refuse) && refuse.Code != wire.RefuseInternal && refuse.Code != wire.RefuseBusy {
			return nil, err
		}
		errs = append(errs, fmt.Errorf("%s: %w", addr, err))
	}
	if len(errs) == 0 {
		return nil, errors.New("no address of the parent is known")
	}
	return nil, errors.Join(errs...)
}

func (d Dialing) askOne(ctx context.Context, addr string, cfg *tls.Config, req wire.Message) (*wire.Joined, error) {
	timeout := d.Timeout
	if timeout <= 0 {
		timeout = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dial := d.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	raw, err := dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	codec := frame.NewCodec()
	if err := frame.Write(conn, codec, req); err != nil {
		return nil, err
	}
	m, _, err := frame.NewReader(conn, codec, frame.MaxGreeting).Next()
	if err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *wire.Joined:
		return m, nil
	case *wire.Refuse:
		return nil, m
	}
	return nil, fmt.Errorf("%w: the parent answered with %T", frame.ErrMalformed, m)
}
