package resolver

import (
	"container/list"
	"strings"
	"sync"
	"time"

	dns "golang.org/x/net/dns/dnsmessage"
)

// Bounds of how long answers of upstream servers are kept.
const (
	maxKeep   = time.Hour
	maxKeepNo = time.Minute // that there is no such name or record
	keepStale = 6 * time.Hour
	staleTTL  = 30 // seconds; RFC 8767, section 4
)

// cacheKey is a question as far as it matters to an upstream server.
type cacheKey struct {
	name   string
	typ    dns.Type
	do, cd bool
}

func (q *query) key() cacheKey {
	return cacheKey{strings.Clone(q.name), q.question.Type, q.do, q.cd}
}

type cacheEntry struct {
	key   cacheKey
	msg   message
	since time.Time
	until time.Time
}

// cache keeps the answers that were used last.
type cache struct {
	mu   sync.Mutex
	size int
	byID map[cacheKey]*list.Element
	lru  *list.List // of *cacheEntry, the last used in front
}

func newCache(size int) *cache {
	return &cache{size: size, byID: map[cacheKey]*list.Element{}, lru: list.New()}
}

// get finds an answer; fresh says that it is still valid.
func (c *cache) get(k cacheKey, now time.Time) (e *cacheEntry, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byID[k]
	if !ok {
		return nil, false
	}
	e = el.Value.(*cacheEntry)
	if now.Sub(e.until) > keepStale {
		c.lru.Remove(el)
		delete(c.byID, k)
		return nil, false
	}
	c.lru.MoveToFront(el)
	return e, now.Before(e.until)
}

// put keeps an answer for as long as it may be kept.
func (c *cache) put(k cacheKey, m message, now time.Time) {
	keep := time.Duration(m.ttl) * time.Second
	switch {
	case m.rcode != dns.RCodeSuccess && m.rcode != rcodeNoName || m.tc || !m.any:
		return
	case m.rcode == rcodeNoName || m.raw[6] == 0 && m.raw[7] == 0:
		keep = min(keep, maxKeepNo)
	}
	if keep = min(keep, maxKeep); keep <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if el, ok := c.byID[k]; ok {
		c.lru.Remove(el)
	}
	c.byID[k] = c.lru.PushFront(&cacheEntry{k, m, now, now.Add(keep)})
	for c.lru.Len() > c.size {
		last := c.lru.Back()
		delete(c.byID, last.Value.(*cacheEntry).key)
		c.lru.Remove(last)
	}
}
