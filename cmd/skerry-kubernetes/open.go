package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/store/vault"
	"skerry.dev/skerry/wire"
	"skerry.dev/skerry/worker/pods"
)

// opener opens what the workers keep, each in a directory of its own.
type opener struct {
	common  node.Common
	tokens  string // file
	parents []string
	boot    string

	mu    sync.Mutex
	spent map[string]bool // tokens that were refused, or used
}

// site names this installation in labels of its objects: what is found in Kubernetes with another name is somebody else's. It is made once,
// because the data directory knows of no site before the first worker has joined one.
func (o *opener) site() (string, error) {
	path := filepath.Join(o.common.Dir, "installation")
	text, err := os.ReadFile(path)
	if err == nil && len(strings.TrimSpace(string(text))) > 0 {
		return strings.TrimSpace(string(text)), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	var b [8]byte
	rand.Read(b[:])
	name := hex.EncodeToString(b[:])
	return name, files.Replace(path, []byte(name+"\n"), 0o600)
}

// open opens the store and the identity of a worker, joining the site first if it has not.
func (o *opener) open(ctx context.Context, worker, kubeNode string) (place *pods.Place, err error) {
	common := o.common
	common.Dir, common.StoreURL = filepath.Join(o.common.Dir, "workers", worker), ""
	if err := common.Fill(); err != nil {
		return nil, err
	}
	place = &pods.Place{}
	if place.Member, err = o.member(ctx, &common, worker); err != nil {
		return nil, err
	}
	if place.Secrets, err = vault.OpenKey(common.Dir); err != nil {
		return nil, err
	}
	if place.Store, place.Repaired, err = common.OpenWorkerStore(ctx); err != nil {
		return nil, err
	}
	return place, nil
}

// member gives the identity of a worker; a new one takes the next token.
func (o *opener) member(ctx context.Context, common *node.Common, worker string) (*auth.Member, error) {
	member, err := common.Member(ctx, wire.TierWorker, node.Join{Name: worker, Parent: o.parents}, nil, o.boot)
	if _, damaged := errors.AsType[*skerry.Error](err); err == nil || damaged {
		return member, err
	}
	o.mu.Lock()
	defer o.mu.Unlock() // one after the other: each is to take another token
	list, err := o.unspent()
	if err != nil {
		return nil, err
	}
	for _, token := range list {
		m, err := common.Member(ctx, wire.TierWorker, node.Join{Name: worker, Token: token, Parent: o.parents}, nil, o.boot)
		refused, said := errors.AsType[*wire.Refuse](err)
		switch {
		case err == nil:
			o.spent[token] = true
			return m, nil
		case !said:
			return nil, err // the cluster may not have heard of it
		}
		switch refused.Code {
		case wire.RefuseTokenName, wire.RefuseNameTaken: // it may be another worker's
		case wire.RefuseTokenUsed, wire.RefuseTokenExpired, wire.RefuseTokenUnknown, wire.RefuseTokenRole:
			o.spent[token] = true
		default:
			return nil, err
		}
		o.common.Log.Warn("a join token is refused", "worker", worker, "err", refused.Reason)
	}
	return nil, skerry.Errorf(skerry.CodeUnavailable, "there is no join token for worker %s", worker).
		WithHint("add a line to the file of --tokens, from `skerry token create --role worker` at the cluster; it is read again")
}

func (o *opener) unspent() (out []string, err error) {
	if o.tokens == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.tokens)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !o.spent[line] {
			out = append(out, line)
		}
	}
	return out, nil
}
