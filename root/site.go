package root

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

const (
	// siteTime bounds how long a site may take to answer a user.
	siteTime = 15 * time.Second
	// maxSiteAnswer bounds what of an answer is read. A worker takes some two to ten KiB.
	maxSiteAnswer = 32 << 20
	// maxSiteAsked bounds the requests that a site has at a time, and so what its answers take together. More wait.
	maxSiteAsked = 4
	// maxSiteText and maxSiteProblems bound what a user sees of an error, in bytes and in lines.
	maxSiteText, maxSiteProblems = 1 << 10, 20
)

// AskSite passes a request of a user on to a site, over the site's own connection, and reads the answer into out, if not nil. The site
// decides whether it answers. Nothing of the answer is kept.
func (s *Server) AskSite(ctx context.Context, site string, ask view.SiteRequest, out any) error {
	ctx, cancel := context.WithTimeout(ctx, siteTime)
	defer cancel()
	to, err := s.answersUsers(ctx, site)
	if err != nil {
		return err
	}
	turn := s.asking.of(site)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return skerry.Errorf(skerry.CodeUnavailable, "cluster %s has not answered others within %s", site, siteTime).
			WithHint("nothing was asked of it; try again in a moment")
	}
	var body io.Reader
	if ask.Body != nil {
		data, err := json.Marshal(ask.Body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, ask.Method, "http://child"+wire.RootUsersPath+ask.Path, body)
	if err != nil {
		return err
	}
	req.Close = true // on a stream that is used again, a second answer would be taken for that of the next user
	req.Header.Set(wire.RootUserHeader, ask.User)
	req.Header.Set(wire.RootRequestHeader, ask.Request)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if ask.Sent != nil {
		ask.Sent()
	}
	res, err := to.RoundTrip(req)
	if err == nil {
		defer res.Body.Close()
		err = readSite(site, res, out)
	}
	if err != nil && ctx.Err() != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "cluster %s has not answered within %s", site, siteTime).
			WithHint("`skerry get clusters` shows when it was heard last")
	}
	if own := new(skerry.Error); err != nil && !errors.As(err, &own) {
		return skerry.Errorf(skerry.CodeUnavailable, "cluster %s does not answer: %w", site, err)
	}
	return err
}

// asking has the turns of requests at each site.
type asking struct {
	mu    sync.Mutex
	turns map[string]chan struct{} // of sites that were there when they were asked
}

// of gives the turns of a site: who can send has one until it receives.
func (a *asking) of(site string) chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.turns == nil {
		a.turns = map[string]chan struct{}{}
	}
	if a.turns[site] == nil {
		a.turns[site] = make(chan struct{}, maxSiteAsked)
	}
	return a.turns[site]
}

// answersUsers gives the way to a site, or says why it cannot be asked. An older one would only answer that it does not know the path.
func (s *Server) answersUsers(ctx context.Context, site string) (http.RoundTripper, error) {
	list, err := s.Clusters(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(list, func(c view.ClusterView) bool { return string(c.Name) == site })
	if at < 0 {
		return nil, skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", site).WithHint("`skerry get clusters` lists them")
	}
	down := s.Down()
	if down == nil {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "the role is starting").WithHint("try again in a moment")
	}
	switch p := down.Peer(site); {
	case p == nil:
		return nil, skerry.Errorf(skerry.CodeUnavailable, "cluster %s is not connected, so it cannot be asked", site).
			WithHint("`skerry get clusters -o wide` shows when it was heard last")
	case !p.Feature(wire.FeatureRootUsers):
		return nil, skerry.Errorf(skerry.CodeUnsupported, "cluster %s has version %s, which answers no users of the root", site,
			list[at].Version).
			WithHint("upgrade the cluster, or log in there")
	}
	return down.RoundTripper(site), nil
}

// readSite reads a site's answer. A site may send anything, of any length.
func readSite(site string, res *http.Response, out any) error {
	if res.StatusCode >= 300 {
		err := skerry.AsError(tier.ReadProblem(res))
		switch {
		case err.Code == skerry.CodeUnauthorized: // it is the user's login here that this code would end
			err.Code = skerry.CodeForbidden
		case err.Code == skerry.CodeRateLimited: // of the root's limits: the audit has no use for it, and a client sends the request again
			err.Code = skerry.CodeUnavailable
		case err.Code.HTTPStatus() == http.StatusInternalServerError: // the site's own bug, or a code that this program does not know
			err.Code = skerry.CodeUnavailable
		}
		err.Message, err.Hint = "cluster "+site+": "+siteText(err.Message), siteText(err.Hint)
		err.Problems = err.Problems[:min(len(err.Problems), maxSiteProblems)]
		for n, p := range err.Problems {
			err.Problems[n] = skerry.Problem{Path: siteText(p.Path), Message: siteText(p.Message), Hint: siteText(p.Hint)}
		}
		return err
	}
	if out == nil {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxSiteAnswer+1))
	if err != nil {
		return err
	}
	if len(data) > maxSiteAnswer {
		return skerry.Errorf(skerry.CodeTooLarge, "cluster %s answers with more than %d bytes, which is not read", site, maxSiteAnswer)
	}
	if costly(data) {
		return skerry.Errorf(skerry.CodeTooLarge, "cluster %s answers with more entries than are read", site).
			WithHint("ask for single workers, or log in at the cluster")
	}
	if err := json.Unmarshal(data, out); err != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "the answer of cluster %s cannot be read", site).
			WithHint("its version may be newer than the root's: upgrade the root first")
	}
	return nil
}

// siteText is what a user sees of a text of a site: as much as a person reads, and nothing that a terminal acts on.
func siteText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxSiteText {
		text = strings.ToValidUTF8(text[:maxSiteText], "") + "…"
	}
	return text
}
