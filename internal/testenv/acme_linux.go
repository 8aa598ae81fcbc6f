package testenv

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// ACME is a certificate authority for tests, with a name server that leads every host to one address.
type ACME struct {
	// Set before Start: where the authority looks for answers, as tests have ports of their own, how long its certificates last, how many
	// nonces in a hundred it does not take, where hosts are, and where authority and name server are; Port is the first of four ports that
	// they take there, 0: any.
	HTTPPort, TLSPort int
	Life              time.Duration
	BadNonces         int
	Bindings          map[string]string // keys of accounts by identifier, base64url, one of which a new account must be bound to; nil: none
	Hosts, Address    string
	Port              int

	URL    string // of the directory
	CAFile string // signs the authority's own certificate
	DNS    string // management of the name server, a URL
	Root   string // where what signs its certificates is fetched, a URL

	t            testing.TB
	programs     string
	dir          string
	addr, manage string
	config       string
	dns, names   string
	cmd          *exec.Cmd
	ended        chan error
}

// Open starts both. root is the way to the repository's top from the package of the test.
func (a *ACME) Open(t testing.TB, root string) {
	t.Helper()
	a.Prepare(t, root)
	a.Serve()
}

// Prepare builds what scripts/acmeserver/build builds once, Pebble and its name server, and makes the files that they need.
func (a *ACME) Prepare(t testing.TB, root string) {
	t.Helper()
	a.t, a.programs, a.dir = t, buildTool(t, root, "acmeserver"), t.TempDir()
	def := func(v *string, d string) {
		if *v == "" {
			*v = d
		}
	}
	def(&a.Hosts, "127.0.0.1")
	def(&a.Address, "127.0.0.1")
	if a.Life == 0 {
		a.Life = 90 * 24 * time.Hour
	}
	a.addr, a.manage, a.dns, a.names = a.at(0), a.at(1), a.at(2), a.at(3)
	a.URL, a.Root, a.DNS, a.CAFile = "https://"+a.addr+"/dir", "https://"+a.manage+"/roots/0", "http://"+a.dns, filepath.Join(a.dir, "ca.pem")
	key := filepath.Join(a.dir, "key.pem")
	a.certificate(key)
	a.config = filepath.Join(a.dir, "pebble.json")
	text, err := json.Marshal(map[string]any{"pebble": map[string]any{"externalAccountBindingRequired": len(a.Bindings) > 0,
		"externalAccountMACKeys": a.Bindings, "listenAddress": a.addr, "managementListenAddress": a.manage,
		"certificate": a.CAFile, "privateKey": key, "httpPort": a.HTTPPort, "tlsPort": a.TLSPort, "keyAlgorithm": "ecdsa",
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "all", "validityPeriod": int(a.Life.Seconds())}}}})
	if err == nil {
		err = os.WriteFile(a.config, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Serve starts both until the test ends.
func (a *ACME) Serve() {
	a.t.Helper()
	serve(a.t, a.dns, filepath.Join(a.programs, "pebble-challtestsrv"), nil, "-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", "",
		"-dnsserver", a.names, "-management", a.dns, "-defaultIPv4", a.Hosts, "-defaultIPv6", "")
	a.Start()
	a.t.Cleanup(a.Stop)
}

func (a *ACME) at(i int) string {
	if a.Port != 0 {
		return net.JoinHostPort(a.Address, strconv.Itoa(a.Port+i))
	}
	l, err := net.Listen("tcp", net.JoinHostPort(a.Address, "0"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// certificate makes the authority's own, which signs itself.
func (a *ACME) certificate(keyFile string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	x := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Pebble of a test"},
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.ParseIP(a.Address)}, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, x, x, key.Public(), key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{a.CAFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY",
		Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// Start starts the authority, which remembers nothing of an earlier life, and waits until it listens.
func (a *ACME) Start() {
	a.t.Helper()
	a.cmd = exec.Command(filepath.Join(a.programs, "pebble"), "-config", a.config, "-dnsserver", a.names)
	a.cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_AUTHZREUSE=0", "PEBBLE_WFE_NONCEREJECT="+strconv.Itoa(a.BadNonces))
	log := new(bytes.Buffer)
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	a.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan error) { ended <- cmd.Wait() }(a.cmd, a.ended)
	for {
		if c, err := net.Dial("tcp", a.addr); err == nil {
			c.Close()
			return
		}
		select {
		case err := <-a.ended:
			a.t.Fatalf("pebble ended: %v\n%s", err, log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the authority.
func (a *ACME) Stop() {
	if a.cmd != nil {
		_ = a.cmd.Process.Kill()
		<-a.ended
		a.cmd = nil
	}
}

// Roots gives what signs its certificates in this life, as PEM.
func (a *ACME) Roots() []byte {
	a.t.Helper()
	own, err := os.ReadFile(a.CAFile)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(own)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}}
	resp, err := client.Get(a.Root)
	if err != nil {
		a.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return text
}
