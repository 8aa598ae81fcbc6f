package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

// serverCert is the parent's own certificate. Its key lives in memory only and is made anew at each start.
type serverCert struct {
	mu     sync.Mutex
	short  *tls.Certificate // the leaf alone
	full   *tls.Certificate // with the CA, for those who join and know only its pin
	issued time.Time        // by the wall clock
}

func (a *Authority) serverCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s := &a.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := a.cfg.Now(); s.short == nil || renewDue(now, s.issued, serverLife*2/3) {
		pub, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		der, err := a.ca.issue(pub, a.cfg.Tier, a.cfg.Site, 0, now, serverLife, serverUsage)
		if err != nil {
			return nil, err
		}
		s.short = &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
		s.full = &tls.Certificate{Certificate: [][]byte{der, a.ca.cert.Raw}, PrivateKey: key}
		s.issued = now.Round(0)
	}
	if slices.Contains(hello.SupportedProtos, joinProto) || !slices.ContainsFunc(hello.SupportedProtos, isOurs) {
		return s.full, nil // also for agents of others, of whom some join
	}
	return s.short, nil
}

func isOurs(proto string) bool { return strings.HasPrefix(proto, "skerry-") }

// ExternalTLS is the configuration of a listener for agents of others, such as the one for MQTT. Who shows a certificate must show one
// of this site's CA; who shows none may join and nothing else, which is the listener's business.
func (a *Authority) ExternalTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: a.serverCertificate, ClientAuth: tls.RequestClientCert, SessionTicketsDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return nil
			}
			_, err := a.Identify(cs)
			return err
		},
	}
}

// ServerTLS is the configuration of the parent's listener. Without a certificate of this site's CA nobody gets past the
// handshake, but on the join protocol.
func (a *Authority) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: a.serverCertificate, ClientAuth: tls.RequestClientCert,
		SessionTicketsDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol == "" {
				return errors.New("no protocol of Skerry was named")
			}
			if cs.NegotiatedProtocol == joinProto && len(cs.PeerCertificates) == 0 {
				return nil
			}
			if cs.NegotiatedProtocol == imagesProto {
				_, err := a.IdentifyStandby(cs)
				return err
			}
			_, err := a.Identify(cs)
			return err
		},
	}
}

// IdentifyStandby reads the verified certificate of a process that stands by for this authority's role: of a successor, which was enrolled,
// or of one that has the authority's store, and certified itself.
func (a *Authority) IdentifyStandby(cs tls.ConnectionState) (wire.PeerIdentity, error) {
	id, err := verifyLeaf(a.ca.cert, cs, x509.ExtKeyUsageClientAuth)
	if err == nil && (id.Site != a.cfg.Site || id.Tier != wire.TierSuccessor && id.Tier != a.cfg.Tier) {
		err = fmt.Errorf("a %s does not stand by for a %s", id.Tier, a.cfg.Tier)
	}
	return id, err
}

// standbyLife is how long a process shows the certificate that it made itself.
const standbyLife = 24 * time.Hour

// StandbyTLS is how a process that shares the authority's store shows itself, under a name, to the one that leads.
func (a *Authority) StandbyTLS(name string) (*tls.Config, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := a.ca.issue(pub, a.cfg.Tier, name, 0, a.cfg.Now(), standbyLife, x509.ExtKeyUsageClientAuth)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		InsecureSkipVerify: true, // the chain is checked below, against one CA and by identity instead of host name
		VerifyConnection: func(cs tls.ConnectionState) error {
			_, err := verifyParent(a.ca.cert, cs, a.cfg.Tier, a.cfg.Site)
			return err
		},
	}, nil
}

// ServeJoin answers the one request of a join connection.
func (a *Authority) ServeJoin(ctx context.Context, conn *tls.Conn) {
	conn.SetDeadline(time.Now().Add(joinDeadline))
	codec := a.codec
	m, _, err := frame.NewReader(conn, codec, frame.MaxGreeting).Next()
	if err != nil {
		if !errors.Is(err, frame.ErrMalformed) && !errors.Is(err, frame.ErrTooLarge) {
			return
		}
		m = nil
	}
	frame.Write(conn, codec, a.Answer(ctx, m, conn.ConnectionState(), conn.RemoteAddr().String()))
}

// Answer answers Join and Renew, the two requests of those who have no certificate yet or need the next one, with Joined or Refuse.
// cs is that of the connection on which m came, addr is for the log.
func (a *Authority) Answer(ctx context.Context, msg wire.Message, cs tls.ConnectionState, addr string) wire.Message {
	var answer *wire.Joined
	var err error
	switch m := msg.(type) {
	case *wire.Join:
		m.Machine, m.Boot = cutText(m.Machine), cutText(m.Boot)
		answer, err = a.Join(ctx, m, addr)
	case *wire.Renew:
		m.Machine, m.Boot, m.Attempt = cutText(m.Machine), cutText(m.Boot), cutText(m.Attempt)
		var id wire.PeerIdentity
		if id, err = a.Identify(cs); err != nil {
			err = &wire.Refuse{Code: wire.RefuseUnknown, Reason: "a renewal needs the enrolled key", Hint: "join with a token first"}
		} else {
			answer, err = a.Renew(ctx, id, m, addr)
		}
	default:
		err = &wire.Refuse{Code: wire.RefuseMalformed, Reason: "a join connection begins with Join or Renew"}
	}
	if err == nil {
		return answer
	}
	var refuse *wire.Refuse
	if !errors.As(err, &refuse) {
		a.cfg.Log.Error("join", "addr", addr, "err", err)
		return &wire.Refuse{Code: wire.RefuseInternal, Reason: "the parent cannot answer now", Hint: "its log says why; try again",
			RetryAfter: 5000}
	}
	a.cfg.Log.Info("join refused", "addr", addr, "code", refuse.Code, "err", refuse.Reason)
	return refuse
}
