package auth

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/wire"
)

// Files of a child's identity in its directory.
const (
	keyFile      = "key.pem"       // 0600; made on the device, never leaves it
	identityFile = "identity.json" // certificate, CA and counter, replaced as one
)

// ErrNotJoined says that a directory holds no identity.
var ErrNotJoined = errors.New("this device has not joined yet")

// Member is a child's identity at its parent. It is safe for concurrent use.
type Member struct {
	dir string
	key crypto.Signer

	renewing sync.Mutex                          // one renewal at a time; taken before mu
	mirror   func(files map[string][]byte) error // nil: none
	mu       sync.Mutex
	id       identity
	ca       *x509.Certificate
	cert     *tls.Certificate
}

// identity is what the identity file holds.
type identity struct {
	Tier    wire.Tier `json:"role"`
	Name    string    `json:"name"`
	Site    string    `json:"site"`
	Cert    string    `json:"certificate"` // PEM
	CA      string    `json:"ca"`          // PEM
	Counter uint64    `json:"counter"`
	Attempt string    `json:"attempt,omitempty"` // of a renewal that was sent and not answered
	// Received and Life date the certificate by this device's own clock.
	Received time.Time `json:"received"`
	Life     int64     `json:"lifeSeconds"`
	SiteCert string    `json:"siteCertificate,omitempty"` // PEM: our own CA's key, certified by the parent
}

// OpenMember reads the identity kept in dir, or gives ErrNotJoined.
func OpenMember(dir string) (*Member, error) {
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, ErrNotJoined)
	}
	if err != nil {
		return nil, err
	}
	m := &Member{dir: dir}
	if m.key, err = loadKey(dir); err != nil {
		return nil, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", filepath.Join(dir, identityFile), err)
	}
	return m, m.use(id)
}

// use takes an identity into memory after checking that it belongs together.
func (m *Member) use(id identity) error {
	cert, err := parsePEM(id.Cert)
	if err != nil {
		return fmt.Errorf("certificate of this device: %w", err)
	}
	ca, err := parsePEM(id.CA)
	if err != nil {
		return fmt.Errorf("certificate of the site CA: %w", err)
	}
	cs := tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	got, err := verifyLeaf(ca, cs, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return fmt.Errorf("certificate of this device: %w", err)
	}
	spki, err := x509.MarshalPKIXPublicKey(m.key.Public())
	if err != nil {
		return err
	}
	if got.Key != hashSPKI(spki) || got.Name != id.Name || got.Tier != id.Tier {
		return errors.New("certificate of this device is for another key or name")
	}
	m.id, m.ca = id, ca
	m.cert = &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: m.key, Leaf: cert}
	return nil
}

func parsePEM(s string) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(s))
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("no PEM certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

func toPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func loadKey(dir string) (crypto.Signer, error) {
	path := filepath.Join(dir, keyFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil {
		return nil, fmt.Errorf("%s is damaged: no PEM block", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	s, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: %T cannot sign", path, key)
	}
	return s, nil
}

// ensureKey makes the device's key at the first attempt to join and keeps it for the next ones.
func ensureKey(dir string) (crypto.Signer, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := loadKey(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	_, fresh, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(fresh)
	if err != nil {
		return nil, err
	}
	return fresh, files.Replace(filepath.Join(dir, keyFile), []byte(toPEM("PRIVATE KEY", der)), 0o600)
}

func (m *Member) save(id identity) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	if err := files.Replace(filepath.Join(m.dir, identityFile), append(b, '\n'), 0o600); err != nil || m.mirror == nil {
		return err
	}
	return m.mirrored()
}

// Mirror has the identity kept in a second place, too, now and at each change: where several processes take turns in being
// one member. keep is given the files of the directory by name, key included, and must not call the member.
func (m *Member) Mirror(keep func(files map[string][]byte) error) error {
	m.renewing.Lock()
	defer m.renewing.Unlock()
	m.mirror = keep
	return m.mirrored()
}

func (m *Member) mirrored() error {
	files := map[string][]byte{}
	for _, name := range []string{keyFile, identityFile} {
		b, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			return err
		}
		files[name] = b
	}
	if err := m.mirror(files); err != nil {
		return fmt.Errorf("keep the identity for the other processes: %w", err)
	}
	return nil
}

// PutMember writes what Mirror kept into a directory, for OpenMember.
func PutMember(dir string, kept map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{keyFile, identityFile} {
		b, ok := kept[name]
		if !ok {
			return fmt.Errorf("%s is missing", name)
		}
		if err := files.Replace(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// CounterOf gives the counter of an identity that Mirror kept; 0: it cannot be read.
func CounterOf(files map[string][]byte) uint64 {
	var id identity
	if json.Unmarshal(files[identityFile], &id) != nil {
		return 0
	}
	return id.Counter
}

func (m *Member) now() identity {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.id
}

// Tier, Name and Site say who this device is, and where. Counter is that of the newest certificate.
func (m *Member) Tier() wire.Tier { return m.now().Tier }
func (m *Member) Name() string    { return m.now().Name }
func (m *Member) Site() string    { return m.now().Site }
func (m *Member) Counter() uint64 { return m.now().Counter }

// SiteCertificate is the parent's signature over this cluster's own CA key (PEM); empty for a worker.
func (m *Member) SiteCertificate() string { return m.now().SiteCert }

// Expires is when the certificate ends by this device's clock. After that it is good for renewal only.
func (m *Member) Expires() time.Time {
	id := m.now()
	return id.Received.Add(time.Duration(id.Life) * time.Second)
}

// NextRenewal says when to renew: after two thirds of the certificate's life, a twentieth more or less by a hash of the
// key, so that a site that joined in one hour does not renew in one hour. After failures it is now plus a growing wait
// of 1 s to 5 min. A clock that jumped back past the day of issue makes the renewal due at once.
func (m *Member) NextRenewal(now time.Time, failures int) time.Time {
	id := m.now()
	if failures > 0 {
		return now.Add(min(time.Second<<min(failures-1, 10), 5*time.Minute))
	}
	life := time.Duration(id.Life) * time.Second
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s %d", id.Name, id.Site, id.Counter)
	spread := life / 10 * time.Duration(h.Sum32()%1000) / 1000
	at := id.Received.Add(life*2/3 - life/20 + spread)
	if now.Before(id.Received.Add(-time.Minute)) {
		return now
	}
	return at
}

// TLS is the configuration for connections to the parent. It carries the present certificate.
func (m *Member) TLS() (*tls.Config, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	cert := m.cert
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*cert},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil },
		InsecureSkipVerify:   true, // the chain is checked below, against one CA and by identity instead of host name
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := m.Identify(cs)
			return err
		},
	}, nil
}

// Identify reads the parent's certificate and checks it against the pinned CA.
func (m *Member) Identify(cs tls.ConnectionState) (wire.PeerIdentity, error) {
	m.mu.Lock()
	ca, id := m.ca, m.id
	m.mu.Unlock()
	return verifyParent(ca, cs, id.Tier.Parent(), id.Site)
}

func verifyParent(ca *x509.Certificate, cs tls.ConnectionState, tier wire.Tier, site string) (wire.PeerIdentity, error) {
	id, err := verifyLeaf(ca, cs, serverUsage)
	if err == nil && (id.Tier != tier || site != "" && (id.Site != site || id.Name != site)) {
		err = fmt.Errorf("this is %s %q and not the parent", id.Tier, id.Name)
	}
	return id, err
}

// Renewed is told of each renewal by Keep.
type Renewed func(failures int, err error)

// Keep renews in time until ctx ends; how to reach the parent is asked before each renewal. A refusal that no retry can
// mend (revoked, clone, unknown) is told like any other failure; the operator may mend it while the agent waits.
func (m *Member) Keep(ctx context.Context, how func() Dialing, told Renewed) error {
	failures := 0
	for {
		t := time.NewTimer(time.Until(m.NextRenewal(time.Now(), failures)))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		err := m.Renew(ctx, how())
		if failures++; err == nil {
			failures = 0
		}
		if told != nil && ctx.Err() == nil {
			told(failures, err)
		}
	}
}
