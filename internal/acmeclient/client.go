// Package acmeclient orders certificates of a public authority by the ACME protocol (RFC 8555): one account, one host an order. How a
// challenge gets its answer is the business of whoever calls. It owns no certificate, keeps nothing, and decides neither what to order
// nor when: that is cluster/certs. The cluster's server imports it.
//
// The authority is trusted with names, and not with this process: what it sends is bounded in size and time, redirects are not followed,
// and it is spoken to by HTTPS alone.
package acmeclient

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"

	"skerry.dev/skerry/wire"
)

// Options set up a Client. Directory and Key are needed.
type Options struct {
	Directory string // URL
	Email     string // by which the authority reaches the operator; empty: it has none
	// Roots sign the authority's own certificate; nil: those of the machine.
	Roots *x509.CertPool
	Key   crypto.Signer // of the account
	// BindingID and BindingKey bind the account to one that the operator has with the authority (RFC 8555, 7.3.4); empty: to none.
	BindingID  string
	BindingKey []byte
	// Timeout bounds each request. Default: 30 s.
	Timeout time.Duration
	// Transport reaches the authority. Default: one of its own, by HTTP/1.1 and 2.
	Transport http.RoundTripper
}

// Challenge is one way to prove a host, ready to be answered.
type Challenge struct {
	Kind string // as RFC 8555 calls it
	// Answer is what workers answer with; of dns-01 its token alone.
	Answer wire.IngressChallenge
	// Record and Value are those of a TXT record; dns-01 alone.
	Record, Value string
}

// Answerer has challenges answered.
type Answerer interface {
	// Present returns as soon as the challenge is answered.
	Present(ctx context.Context, c *Challenge) error
	// Withdraw ends that, whatever became of it.
	Withdraw(c *Challenge)
}

// Failure is an order that came to nothing.
type Failure struct {
	Err error
	// Unreachable: the authority did not take the order up, so that it counts none.
	Unreachable bool
	RetryAfter  time.Duration // as the authority asks; 0: it does not
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Client orders certificates. Its methods may be called by several goroutines.
type Client struct {
	opt  Options
	http *http.Client

	mu   sync.Mutex
	acme *acme.Client // with an account; nil: it is yet to be looked up
}

// New makes a client. It speaks to nobody yet.
func New(opt Options) *Client {
	if opt.Timeout == 0 {
		opt.Timeout = 30 * time.Second
	}
	if opt.Transport == nil {
		opt.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: opt.Roots,
			MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: opt.Timeout}
	}
	return &Client{opt: opt, http: &http.Client{Transport: &bounded{opt.Transport}, Timeout: opt.Timeout,
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			return fmt.Errorf("the authority redirects to %.100q, which is not followed", r.URL.String())
		}}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// account gives a client with an account at the authority, whose terms the operator has accepted.
func (c *Client) account(ctx context.Context) (*acme.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.acme != nil {
		return c.acme, nil
	}
	client := &acme.Client{Key: c.opt.Key, HTTPClient: c.http, DirectoryURL: c.opt.Directory, RetryBackoff: backoff, UserAgent: "skerry"}
	account := &acme.Account{}
	if c.opt.Email != "" {
		account.Contact = []string{"mailto:" + c.opt.Email}
	}
	if c.opt.BindingID != "" {
		account.ExternalAccountBinding = &acme.ExternalAccountBinding{KID: c.opt.BindingID, Key: c.opt.BindingKey}
	}
	made, err := client.Register(ctx, account, acme.AcceptTOS)
	switch {
	case err != nil && !errors.Is(err, acme.ErrAccountAlreadyExists):
		return nil, fmt.Errorf("account at the certificate authority: %w", err)
	case err == nil && made.URI == "": // each request would ask for it again
		return nil, errors.New("account at the certificate authority: the answer has no address of it")
	}
	c.acme = client
	return client, nil
}

// forget has the account looked up again.
func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acme = nil
}

// Order orders a certificate for a host, which may be *.DOMAIN, and waits for it. Of the kinds of challenges it takes the first that the
// authority offers. Errors are of type *Failure.
func (c *Client) Order(ctx context.Context, host string, kinds []string, by Answerer) (certPEM, keyPEM []byte, err error) {
	client, err := c.account(ctx)
	if err != nil {
		return nil, nil, failure(err, false)
	}
	order, err := client.AuthorizeOrder(ctx, acme.DomainIDs(host))
	if problem := new(acme.Error); errors.As(err, &problem) && strings.HasSuffix(problem.ProblemType, ":accountDoesNotExist") {
		c.forget() // the authority has lost it, or is another one
		if client, err = c.account(ctx); err == nil {
			order, err = client.AuthorizeOrder(ctx, acme.DomainIDs(host))
		}
	}
	if err != nil {
		return nil, nil, failure(err, false)
	}
	if certPEM, keyPEM, err = complete(ctx, client, order, host, kinds, by); err != nil {
		return nil, nil, failure(err, true)
	}
	return certPEM, keyPEM, nil
}

// maxAuthorizations is more than one host needs.
const maxAuthorizations = 4

// complete proves the host and fetches the certificate.
func complete(ctx context.Context, client *acme.Client, order *acme.Order, host string, kinds []string, by Answerer) (certPEM,
	keyPEM []byte,
	err error) {
	if len(order.AuthzURLs) > maxAuthorizations {
		return nil, nil, fmt.Errorf("the authority wants %d proofs for one host", len(order.AuthzURLs))
	}
	for _, url := range order.AuthzURLs {
		if err := prove(ctx, client, url, host, kinds, by); err != nil {
			return nil, nil, err
		}
	}
	if order.Status != acme.StatusReady && order.Status != acme.StatusValid {
		ready, err := client.WaitOrder(ctx, order.URI)
		if err != nil {
			return nil, nil, fmt.Errorf("wait for the order: %w", err)
		}
		order.FinalizeURL = ready.FinalizeURL
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{host}}, key)
	if err != nil {
		return nil, nil, err
	}
	chain, _, err := client.CreateCertFromOrder(ctx, order, csr, true)
	if err != nil {
		return nil, nil, fmt.Errorf("fetch the certificate: %w", err)
	}
	return encode(chain, key)
}

// prove answers one of the challenges of an authorization, unless it is valid already.
func prove(ctx context.Context, client *acme.Client, url, host string, kinds []string, by Answerer) (err error) {
	auth, err := client.GetAuthorization(ctx, url)
	if err != nil {
		return fmt.Errorf("read what proves the host: %w", err)
	}
	if auth.Status == acme.StatusValid {
		return nil
	}
	var offered []string
	var chosen *acme.Challenge
	for _, kind := range kinds {
		if i := slices.IndexFunc(auth.Challenges, func(c *acme.Challenge) bool { return c.Type == kind }); i >= 0 {
			chosen = auth.Challenges[i]
			break
		}
	}
	if chosen == nil {
		for _, c := range auth.Challenges {
			offered = append(offered, c.Type)
		}
		return fmt.Errorf("the authority takes %.100q as a proof, and the site can give %s", strings.Join(offered, ", "), strings.Join(kinds,
			", "))
	}
	ready, err := challenge(client, chosen, host)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // the authority need not wait for it
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			_ = client.RevokeAuthorization(end, url)
		}
	}()
	defer by.Withdraw(ready)
	if err := by.Present(ctx, ready); err != nil {
		return fmt.Errorf("answer %s: %w", chosen.Type, err)
	}
	if _, err := client.Accept(ctx, chosen); err != nil {
		return fmt.Errorf("have %s looked at: %w", chosen.Type, err)
	}
	if _, err := client.WaitAuthorization(ctx, url); err != nil {
		return fmt.Errorf("the authority did not find the answer to %s: %w", chosen.Type, err)
	}
	return nil
}

// maxToken bounds a token, which becomes a part of a path.
const maxToken = 256

// challenge makes one ready to be answered.
func challenge(client *acme.Client, offered *acme.Challenge, host string) (*Challenge, error) {
	if offered.Token == "" || len(offered.Token) > maxToken ||
		strings.Trim(offered.Token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		return nil, fmt.Errorf("the authority's token %.50q is not valid", offered.Token)
	}
	out := &Challenge{Kind: offered.Type, Answer: wire.IngressChallenge{Host: host, Token: offered.Token}}
	var err error
	switch offered.Type {
	case "http-01":
		out.Answer.Answer, err = client.HTTP01ChallengeResponse(offered.Token)
	case "tls-alpn-01":
		var cert tls.Certificate
		if cert, err = client.TLSALPN01ChallengeCert(offered.Token, host); err == nil {
			out.Answer.CertPEM, out.Answer.KeyPEM, err = encode(cert.Certificate, cert.PrivateKey)
		}
	case "dns-01":
		out.Record = "_acme-challenge." + strings.TrimPrefix(host, "*.")
		out.Value, err = client.DNS01ChallengeRecord(offered.Token)
	default:
		err = fmt.Errorf("nothing here answers %s", offered.Type)
	}
	return out, err
}

func encode(chain [][]byte, key crypto.PrivateKey) (certPEM, keyPEM []byte, err error) {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	for _, der := range chain {
		certPEM = append(certPEM, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), nil
}

// failure says what became of an order that failed; taken: the authority had taken it up.
func failure(err error, taken bool) *Failure {
	out := &Failure{Err: err, Unreachable: !taken}
	problem := new(acme.Error)
	if errors.As(err, &problem) {
		out.Unreachable = out.Unreachable && problem.StatusCode >= 500
		out.RetryAfter = retryAfter(problem.Header.Get("Retry-After"), time.Now())
	}
	refused := new(acme.AuthorizationError)
	if errors.As(err, &refused) { // its text has an address of the authority's, and what matters at its end
		var why []string
		for _, e := range refused.Errors {
			if errors.As(e, &problem) {
				why = append(why, problem.Detail)
			} else {
				why = append(why, e.Error())
			}
		}
		if len(why) > 0 {
			out.Err = fmt.Errorf("the authority did not find the proof of %s: %s", refused.Identifier, strings.Join(why, "; "))
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		out.Err = fmt.Errorf("the certificate authority took too long: %w", err)
	}
	return out
}
