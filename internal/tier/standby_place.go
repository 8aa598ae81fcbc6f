package tier

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// keyLeaderAt says where the process that leads listens, for those that share its store and know nothing else of it.
const keyLeaderAt = "meta/leads-at"

// standby serves a process that stands by, which has shown a certificate of this authority.
func (h *Hub) standby(ctx context.Context, conn *tls.Conn) {
	standbys := h.cfg.Images.(*Images).Standbys
	id, err := h.authority.IdentifyStandby(conn.ConnectionState())
	admit := func() error { return nil } // who has the store is told nothing new
	if err == nil && id.Tier == wire.TierSuccessor {
		admit = func() error { return h.authority.Admit(ctx, id, nil) }
	}
	if err == nil {
		err = admit()
	}
	if err == nil {
		err = standbys.Serve(ctx, conn, id.Name, admit)
	}
	if err != nil {
		h.cfg.Log.Debug("standby", "name", id.Name, "err", err)
	}
}

// tendStandbys says where standbys find this process, and fetches from them what is missing here, until ctx ends.
func (h *Hub) tendStandbys(ctx context.Context, s *Standbys) {
	if h.cfg.Leadership == nil {
		if err := h.sayWhere(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Log.Warn("standbys do not learn where this process is, and copy no images", "err", err)
		}
	}
	s.restore(ctx, func(image digest.Digest, err error) {
		if err != nil && ctx.Err() == nil {
			h.cfg.Log.Warn("an image is incomplete here, and no standby has what is missing", "image", image, "err", err)
		}
	})
}

func (h *Hub) sayWhere(ctx context.Context) error {
	list, err := addressesOf(h.listen.Load())
	if err != nil {
		return err
	}
	value, err := json.Marshal(list)
	if err != nil {
		return err
	}
	for {
		rec, err := h.cfg.Store.Get(ctx, keyLeaderAt)
		if err == nil && bytes.Equal(rec.Value, value) {
			return nil
		}
		if err == nil || errors.Is(err, store.ErrNotFound) {
			if _, err = h.cfg.Store.Commit(ctx, []store.Op{{Key: keyLeaderAt, Value: value}}); err == nil {
				return nil
			}
		}
		if ctx.Err() != nil || errors.Is(err, store.ErrDeposed) {
			return err
		}
		pause(ctx, probeEvery)
	}
}

// addressesOf lists where others may reach a listener: its address, or all of this machine's.
func addressesOf(at *net.TCPAddr) (out []string, err error) {
	port := strconv.Itoa(at.Port)
	if !at.IP.IsUnspecified() {
		return []string{net.JoinHostPort(at.IP.String(), port)}, nil
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(out) < maxLeaderAddrs {
			out = append(out, net.JoinHostPort(n.IP.String(), port))
		}
	}
	return append(out, net.JoinHostPort("127.0.0.1", port)), nil // another process of the same machine, last
}

// maxLeaderAddrs bounds the addresses that a standby tries.
const maxLeaderAddrs = 16

// standbyGreets bounds the time in which a leader answers.
const standbyGreets = 5 * time.Second

// DialImages connects to a leader as one of its standbys.
func DialImages(ctx context.Context, addr string, cfg *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, standbyGreets)
	defer cancel()
	cfg = cfg.Clone()
	cfg.MinVersion, cfg.NextProtos = tls.VersionTLS13, []string{link.ProtoImages}
	return (&tls.Dialer{Config: cfg}).DialContext(ctx, "tcp", addr)
}

// DialLeader connects to the leader of a store that processes share. name is what this one is called among them.
func DialLeader(ctx context.Context, st store.Store, tier wire.Tier, name string) (net.Conn, error) {
	rec, err := st.Get(ctx, auth.CARecord)
	if err != nil {
		return nil, err
	}
	var ca struct {
		Site string `json:"site"`
	}
	if err := json.Unmarshal(rec.Value, &ca); err != nil {
		return nil, fmt.Errorf("record of the site CA: %w", err)
	}
	authority, err := auth.OpenAuthority(ctx, auth.AuthorityConfig{Site: ca.Site, Tier: tier, Store: st})
	if err != nil {
		return nil, err
	}
	cfg, err := authority.StandbyTLS(name)
	if err != nil {
		return nil, err
	}
	if rec, err = st.Get(ctx, keyLeaderAt); errors.Is(err, store.ErrNotFound) {
		return nil, errors.New("the one that leads has not said where it is; it may be of an older version")
	} else if err != nil {
		return nil, err
	}
	var addrs []string
	if err := json.Unmarshal(rec.Value, &addrs); err != nil {
		return nil, fmt.Errorf("record %s: %w", keyLeaderAt, err)
	}
	var errs []error
	for _, addr := range addrs[:min(len(addrs), maxLeaderAddrs+1)] {
		conn, err := DialImages(ctx, addr, cfg)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// StandbyName is what a process with a data directory is called among those that share its store: after its host, and not as another one
// there.
func StandbyName(host, dir string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return -1
	}, strings.ToLower(host))
	name = strings.Trim(name[:min(len(name), 40)], "-")
	if skerry.CheckName(name) != nil {
		name = "standby"
	}
	return name + "-" + digest.FromString(dir).Encoded()[:6]
}

// uncopied counts the images that not every standby has.
func (s *Standbys) uncopied() (n int) {
	images := artifact.LedgerImages(s.Images)
	s.mu.Lock()
	defer s.mu.Unlock()
	for image := range images {
		if c := s.copiesLocked(image); c.Have < c.Of {
			n++
		}
	}
	return n
}

// connected counts the standbys that are.
func (s *Standbys) connected() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for name := range s.list {
		if s.list[name].link != nil {
			n++
		}
	}
	return n
}
