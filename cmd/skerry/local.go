package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/ctl"
	"skerry.dev/skerry/internal/succession"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/plugin"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// parentLocal answers for a root or a cluster.
type parentLocal struct {
	role, name string
	dir        string // of its data
	authority  *auth.Authority
	store      store.Store
	images     *tier.Images
	ready      func() error
	parent     func() (bool, string, bool) // nil at the root
	plugins    *plugin.Host                // nil: none
	api        *apiFlags
	orphans    func(ctx context.Context) ([]view.Orphan, error)
	rebuilt    func(ctx context.Context) (*view.Rebuilt, error) // nil at the root
	leadership *succession.Leadership                           // nil: the store is shared, or this is the root
}

func (p *parentLocal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + r.URL.Path {
	case "GET /status":
		st := p.status()
		var err error
		if p.leadership != nil {
			st.Succession, err = p.leadership.Status(r.Context())
		}
		if p.rebuilt != nil && err == nil {
			st.Rebuilt, err = p.rebuilt(r.Context())
		}
		if err == nil {
			var list []view.Orphan
			list, err = p.orphans(r.Context())
			st.Orphans = view.OrphansRunning(list)
		}
		role.Answer(w, st, err)
	case "POST /token":
		v, err := p.token(r)
		role.Answer(w, v, err)
	case "POST /backup":
		p.backup(w, r)
	case "GET /plugins":
		role.Answer(w, pluginList(p.plugins), nil)
	default:
		role.Answer(w, nil, skerry.Errorf(skerry.CodeNotFound, "a %s does not answer %s", p.role, r.URL.Path))
	}
}

// standingLocal answers while a cluster's machine stands by.
type standingLocal struct {
	leadership *succession.Leadership
	images     *tier.Standby // nil: a bucket has them
}

func (l *standingLocal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method+" "+r.URL.Path != "GET /status" {
		role.Answer(w, nil, skerry.Errorf(skerry.CodeUnavailable, "this machine is a standby and does not lead its site").
			WithHint("ask the leader; `skerry cluster status` names it"))
		return
	}
	st := role.Status{Role: "cluster", Version: version, Pid: os.Getpid(), Why: "it stands by"}
	var err error
	if st.Succession, err = l.leadership.Status(r.Context()); st.Succession != nil {
		st.Name = st.Succession.Candidate
	}
	if l.images != nil {
		images := l.images.State()
		st.ImageCopies = &images
	}
	role.Answer(w, st, err)
}

func (p *parentLocal) status() role.Status {
	st := role.Status{Role: p.role, Name: p.name, Version: version, Pid: os.Getpid(), Ready: true, API: p.api.url(), Pin: p.authority.CAPin()}
	if err := p.ready(); err != nil {
		st.Ready, st.Why = false, err.Error()
	}
	use := p.images.Store.Cache.Use()
	st.Cache = &use
	if p.images.Standbys != nil {
		st.Standbys = p.images.Standbys.List()
	}
	if p.parent != nil {
		if up, why, ok := p.parent(); ok {
			st.Parent = &role.ParentStatus{Connected: up, Why: why}
		}
	}
	return st
}

func (p *parentLocal) token(r *http.Request) (ctl.Token, error) {
	var q ctl.TokenRequest
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<16)).Decode(&q); err != nil {
		return ctl.Token{}, skerry.Errorf(skerry.CodeInvalid, "%w", err)
	}
	want := wire.TierCluster
	if p.role == "cluster" {
		want = wire.TierWorker
	}
	if q.Role != want && (q.Role != wire.TierSuccessor || p.leadership == nil) {
		return ctl.Token{}, skerry.Errorf(skerry.CodeWrongTier, "a %s issues tokens for a %s, not for a %s", p.role, want, q.Role).
			WithHint("ask a cluster for tokens of workers, and the root for tokens of clusters")
	}
	text, t, err := p.authority.CreateToken(r.Context(),
		auth.TokenOptions{Tier: q.Role, Name: q.Name, TTL: time.Duration(q.TTL), Replace: q.Replace, By: "local"})
	return ctl.Token{Token: text, ID: t.ID, Expires: t.Expires}, err
}

// localClient speaks to a worker over its socket as to a server of the API.
func localClient(data string) (*api.Client, error) {
	dial, err := role.DialLocal(data)
	if err != nil {
		return nil, err
	}
	return api.NewClient(api.ClientOptions{Server: "http://127.0.0.1", Bearer: "local", Dial: dial})
}

// localToken asks the role that runs on a data directory for a join token.
func localToken(ctx context.Context, data string, q ctl.TokenRequest) (t ctl.Token, err error) {
	err = role.CallLocal(ctx, data, "POST", "/token", q, &t)
	return t, err
}
