package store

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Options for Open. The zero value is usable.
type Options struct {
	// KeepRevisions is about how many revisions of history remain for watchers; 0 means 10,000. In a file, older ones go sooner where they
	// take more room than the records, and more than 4 MiB. In etcd, history belongs to the whole server: a negative number leaves it to the
	// operator's --auto-compaction-retention.
	KeepRevisions int64
	// TLS is for etcd. Nil means plain text for etcd:// and the system's roots for etcds://.
	TLS *tls.Config
	// Timeout bounds the first contact with etcd; 0 means 5 seconds.
	Timeout time.Duration
	// CacheKiB is SQLite's page cache per connection (there are at most three) in KiB; 0 means 256.
	CacheKiB int
	// Now names damaged files; nil means time.Now.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.KeepRevisions == 0 {
		o.KeepRevisions = 10_000
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.CacheKiB == 0 {
		o.CacheKiB = 256
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Open opens the store that a URL names:
//
//	memory:                                   in this process, gone when it ends
//	sqlite:/var/lib/skerry/root.db            a file, created when missing (its folder is not)
//	etcd://user:password@host:2379,host:2379/prefix   an etcd cluster; etcds:// for TLS
//
// A damaged file, or one that has lost acknowledged writes, is reported as *DamagedError and left as it is; see Repair and Replace.
func Open(ctx context.Context, rawURL string, opt Options) (Store, error) {
	opt = opt.withDefaults()
	scheme, rest, _ := strings.Cut(rawURL, ":")
	switch scheme {
	case "memory":
		if rest != "" {
			return nil, fmt.Errorf("store %q: a memory store takes nothing after the colon", rawURL)
		}
		return newMemory(opt), nil
	case "sqlite":
		path, _ := sqlitePath(rawURL)
		if path == "" || strings.HasSuffix(path, "/") {
			return nil, fmt.Errorf("store %q: name a file, such as sqlite:/var/lib/skerry/root.db", rawURL)
		}
		s, err := openSQLite(ctx, path, opt)
		if err != nil {
			return nil, err
		}
		return s, nil
	case "etcd", "etcds":
		u, err := url.Parse(rawURL)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("store: an etcd store is named as etcd://host:2379/prefix")
		}
		s, err := openEtcd(ctx, u, opt)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	return nil, fmt.Errorf("store %q: unknown kind %q; use sqlite:PATH, etcd://HOST:PORT/PREFIX or memory: (nothing is kept)", rawURL, scheme)
}
