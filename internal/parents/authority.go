package parents

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/internal/files"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/vault"
)

// CAFile is the certificate of a role's authority in its data directory. It is no secret, and it shows that there has been one when the
// store is gone.
const CAFile = "ca.pem"

// founded reports whether a store has an authority, or what is left of one.
func founded(ctx context.Context, st store.Store) (bool, error) {
	list, _, err := st.List(ctx, auth.AuthorityRecords)
	return len(list) > 0, err
}

// lostStore refuses an empty store where a role has been: it would be another site with another CA and other users, to which nobody
// belongs.
func lostStore(ctx context.Context, c *node.Common, st store.Store, more string) error {
	if _, err := os.Stat(filepath.Join(c.Dir, CAFile)); err != nil || keepsNothing(c) {
		return nil
	}
	if has, err := founded(ctx, st); has || err != nil {
		return err
	}
	back, where := "put state.db and the files beside it back", "--data "+c.Dir
	if c.StoreURL != c.OwnStore() {
		back, where = "start with the --store that it had", where+" --store "+c.StoreURL
	}
	return skerry.Errorf(skerry.CodeUnavailable,
		"the store of %s is lost: %s is empty, and %s is the certificate of an authority that there has been", c.Dir, c.StoreURL, CAFile).
		WithHint("%s, or put a backup in its place with `skerry restore %s FILE`%s. "+
			"To begin anew with another authority, which everything must join again, use an empty data directory", back, where, more)
}

// keepsNothing reports whether the store goes when the process ends.
func keepsNothing(c *node.Common) bool { return strings.HasPrefix(c.StoreURL, "memory:") }

// keepCA writes the certificate of the role's authority. On a disk that cannot be written it stays as it is; the next start writes it. Of
// an authority that goes with its store there is none.
func keepCA(c *node.Common, a *auth.Authority) {
	path, text := filepath.Join(c.Dir, CAFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.CA()})
	if old, err := os.ReadFile(path); keepsNothing(c) || err == nil && bytes.Equal(old, text) {
		return
	}
	if err := files.Replace(path, text, 0o644); err != nil {
		c.Log.Warn("the certificate of the authority could not be written", "path", path, "err", err)
	}
}

// openKey opens the key of the secrets. A store that is not new has had one.
func openKey(ctx context.Context, c *node.Common, st store.Store) (*vault.Key, error) {
	path := filepath.Join(c.Dir, vault.KeyFile)
	_, err := os.Stat(path)
	k, failed := vault.OpenKey(c.Dir)
	if failed != nil || !errors.Is(err, fs.ErrNotExist) {
		return k, failed
	}
	if has, err := founded(ctx, st); err == nil && has {
		c.Log.Warn("the key of the secrets was missing, and a new one was made: secrets that are stored cannot be opened with it",
			"path", path, "hint", "put the old file back and start again, or rotate each secret")
	}
	return k, nil
}
