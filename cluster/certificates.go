package cluster

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/cluster/certs"
	"skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/acmeclient"
	"skerry.dev/skerry/internal/panics"
	"skerry.dev/skerry/internal/printed"
	"skerry.dev/skerry/internal/tier"
)

// ACMEOptions say how the site orders certificates of a public authority. Which ones is the admission policy's affair.
type ACMEOptions struct {
	Email string         // of the operator, for the authority; empty: it gets none
	Roots *x509.CertPool // sign the authority's own certificate; nil: those of the machine
	Hook  string         // program that sets and unsets DNS records; empty: none
	// BindingID and BindingKey bind the site's account to one that the operator has with the authority; empty: to none.
	BindingID  string
	BindingKey []byte
}

const (
	// orderFor bounds one order, answerFor the wait for workers to answer a challenge, and hookFor one call of the operator's program,
	// which may wait until name servers have a record.
	orderFor, answerFor, hookFor = 10 * time.Minute, 30 * time.Second, 5 * time.Minute
	// lateFor bounds the wait for the core to say whether some workers answer where not all do.
	lateFor = 5 * time.Second
	// unsetFor bounds the call that removes a record: the end of the process waits for it.
	unsetFor = 20 * time.Second
	// maxHookSaid bounds what is kept of what the program prints.
	maxHookSaid = 300
)

// newAccountKey makes a key for an account at a certificate authority, as PEM.
func newAccountKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), err
}

// certifier carries out the orders of one life for certificates of a public authority.
type certifier struct {
	opt       ACMEOptions
	directory string
	work      *tier.Work
	post      func(msg any) // to the core
	log       *slog.Logger
	answerFor time.Duration

	mu     sync.Mutex
	client *acmeclient.Client       // made for the first order
	waits  map[string]chan struct{} // closed when workers answer a challenge, by token
}

func newCertifier(opt ACMEOptions, directory string, work *tier.Work, post func(msg any), log *slog.Logger) *certifier {
	return &certifier{opt: opt, directory: directory, work: work, post: post, log: log, answerFor: answerFor,
		waits: map[string]chan struct{}{}}
}

// order carries out one order. The core bounds how many there are.
func (c *certifier) order(asked core.OrderCertificate) {
	c.work.Go(func() {
		done := core.CertificateDone{Result: certs.Result{Host: asked.Host, Org: asked.Org, Why: "the cluster's orchestrator failed at it"}}
		defer func() { c.post(done) }()
		defer panics.Catch(c.log, "an order of a certificate")
		ctx, cancel := context.WithTimeout(c.work.Ctx, orderFor)
		defer cancel()
		client, err := c.authority(asked.Account)
		if err == nil {
			var kinds []string
			for _, k := range asked.Kinds {
				kinds = append(kinds, string(k))
			}
			done.CertPEM, done.KeyPEM, err = client.Order(ctx, asked.Host, kinds, c)
		}
		done.Why = ""
		if err != nil {
			done.Why = cmp.Or(err.Error(), "it failed")
		}
		if f := new(acmeclient.Failure); errors.As(err, &f) {
			done.Unreachable, done.RetryAfter = f.Unreachable, f.RetryAfter
		}
	})
}

// authority gives the way to the authority, with the account that the site has there.
func (c *certifier) authority(account []byte) (*acmeclient.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return c.client, nil
	}
	block, _ := pem.Decode(account)
	if block == nil {
		return nil, errors.New("the key of the site's account at the certificate authority cannot be read")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the key of the site's account at the certificate authority: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key of the site's account at the certificate authority signs nothing")
	}
	c.client = acmeclient.New(acmeclient.Options{Directory: c.directory, Email: c.opt.Email, Roots: c.opt.Roots, Key: signer,
		BindingID: c.opt.BindingID, BindingKey: c.opt.BindingKey})
	return c.client, nil
}

// close ends idle connections, once no order is under way.
func (c *certifier) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.Close()
	}
}

// answered takes that workers answer a challenge.
func (c *certifier) answered(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wait := c.waits[token]; wait != nil {
		close(wait)
		delete(c.waits, token)
	}
}

// Present implements acmeclient.Answerer.
func (c *certifier) Present(ctx context.Context, ch *acmeclient.Challenge) error {
	if ch.Record != "" {
		return c.hook(ctx, hookFor, "set", ch)
	}
	wait := make(chan struct{})
	c.mu.Lock()
	c.waits[ch.Answer.Token] = wait
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waits, ch.Answer.Token)
	}()
	ctx, cancel := context.WithTimeoutCause(ctx, c.answerFor+lateFor, errors.New("no worker with an ingress answers it yet"))
	defer cancel()
	c.post(core.ChallengeSet{Host: ch.Answer.Host, Challenge: &ch.Answer})
	late := time.NewTimer(c.answerFor)
	defer late.Stop()
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
	}
	c.post(core.ChallengeLate{Host: ch.Answer.Host})
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Withdraw implements acmeclient.Answerer.
func (c *certifier) Withdraw(ch *acmeclient.Challenge) {
	if ch.Record == "" {
		c.post(core.ChallengeSet{Host: ch.Answer.Host})
		return
	}
	// Also at the end of this life: nobody else would remove it.
	if err := c.hook(context.WithoutCancel(c.work.Ctx), unsetFor, "unset", ch); err != nil {
		c.log.Warn("remove a DNS record", "name", ch.Record, "err", err)
	}
}

// hook calls the operator's program.
func (c *certifier) hook(ctx context.Context, limit time.Duration, what string, ch *acmeclient.Challenge) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.opt.Hook, what, ch.Record, ch.Value)
	endTogether(cmd)
	cmd.WaitDelay = time.Second // what it started may keep its output open
	said := &printed.Head{Max: maxHookSaid}
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) { // what it started is still there
		_ = endGroup(cmd)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the DNS program did not end in %v", limit)
	case err != nil:
		return fmt.Errorf("the DNS program failed (%w): %q", err, strings.TrimSpace(said.String()))
	}
	return nil
}
