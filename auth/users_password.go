package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"skerry.dev/skerry"
)

// Argon2 are the parameters of argon2id. The zero value means the default: 19 MiB, 2 passes, one lane, the least memory
// that OWASP's password storage guide accepts, because a cluster may live on a board with 512 MiB. Hashes keep the
// parameters that they were made with.
type Argon2 struct {
	Memory uint32 // KiB
	Time   uint32
}

func (a Argon2) fill() Argon2 {
	if a.Memory == 0 {
		a.Memory = 19 << 10
	}
	if a.Time == 0 {
		a.Time = 2
	}
	return a
}

const (
	hashSalt = 16
	hashSize = 32
	// Bounds for stored hashes, so that a restored store cannot take all memory.
	maxHashMemory = 256 << 10
	maxHashTime   = 16
)

// hashText is how salt and hash are written, as other programs do.
var hashText = base64.RawStdEncoding

func (a Argon2) hash(password string) string {
	salt := make([]byte, hashSalt)
	rand.Read(salt)
	return a.text(salt, argon2.IDKey([]byte(password), salt, a.Time, a.Memory, 1, hashSize))
}

// decoy gives a hash that no known password has, and that takes as long to verify as any other. A role makes one at each start, so that
// nothing is computed for it: its sum is as random as one that is.
func (a Argon2) decoy() string {
	salt, sum := make([]byte, hashSalt), make([]byte, hashSize)
	rand.Read(salt)
	rand.Read(sum)
	return a.text(salt, sum)
}

func (a Argon2) text(salt, sum []byte) string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$%s$%s", argon2.Version, a.Memory, a.Time, hashText.EncodeToString(salt),
		hashText.EncodeToString(sum))
}

// verify compares in constant time.
func verifyPassword(hash, password string) bool {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false
	}
	var v int
	var a Argon2
	if _, err := fmt.Sscanf(parts[2], "v=%d", &v); err != nil || v != argon2.Version {
		return false
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=1", &a.Memory, &a.Time); err != nil || a.Memory > maxHashMemory || a.Time > maxHashTime ||
		a.Time == 0 {
		return false
	}
	salt, err1 := hashText.DecodeString(parts[4])
	sum, err2 := hashText.DecodeString(parts[5])
	if err1 != nil || err2 != nil || len(sum) < 16 || len(sum) > 64 {
		return false
	}
	got := argon2.IDKey([]byte(password), salt, a.Time, a.Memory, 1, uint32(len(sum)))
	return subtle.ConstantTimeCompare(got, sum) == 1
}

// hashers bounds the memory of hashing: one at a time, and few that wait. Those that come from one address have a part of the places, and
// the machine itself has some of its own, so that nobody elsewhere keeps its operator out.
type hashers struct {
	slot    chan struct{}
	mu      sync.Mutex
	waiting map[string]int // by source
	others  int            // all of these, but for the machine's own
}

const (
	maxHashWaiting = 16 // from elsewhere
	maxHashSource  = 4  // from one source
)

// ownSource is the machine itself, and what the server asks for by itself.
const ownSource = ""

func newHashers() *hashers {
	return &hashers{slot: make(chan struct{}, 1), waiting: map[string]int{}}
}

// sourceOf gives what an address is counted as: itself, or the network of 64 bits from which one host has any number of addresses.
func sourceOf(addr string) string {
	a, err := netip.ParseAddr(addr)
	switch a = a.Unmap().WithZone(""); {
	case err != nil:
		return addr
	case a.IsLoopback():
		return ownSource
	case a.Is6():
		net, _ := a.Prefix(64)
		return net.String()
	}
	return a.String()
}

// enter takes a place for a source; leave, if it is not nil, gives it back.
func (h *hashers) enter(source string) (leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.waiting[source] >= maxHashSource || source != ownSource && h.others >= maxHashWaiting {
		return nil
	}
	count := func(n int) {
		if h.waiting[source] += n; h.waiting[source] == 0 {
			delete(h.waiting, source)
		}
		if source != ownSource {
			h.others += n
		}
	}
	count(1)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		count(-1)
	}
}

func (h *hashers) do(ctx context.Context, addr string, f func()) error {
	leave := h.enter(sourceOf(addr))
	if leave == nil {
		return skerry.Errorf(skerry.CodeRateLimited, "too many logins at the same time").WithHint("try again in a few seconds")
	}
	defer leave()
	select {
	case h.slot <- struct{}{}:
		defer func() { <-h.slot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	f()
	// What hashing took would stay with the process until the next collection; a small device has better use for it.
	debug.FreeOSMemory()
	return nil
}

// Lengths of passwords in bytes.
const (
	minPassword = 10
	maxPassword = 256
)

func checkPassword(p string) error {
	switch {
	case len(p) < minPassword:
		return skerry.Errorf(skerry.CodeInvalid, "password: has %d characters; at least %d are needed", utf8.RuneCountInString(p), minPassword).
			WithHint("a few unrelated words make a good one")
	case len(p) > maxPassword:
		return skerry.Errorf(skerry.CodeInvalid, "password: has %d bytes; at most %d are allowed", len(p), maxPassword)
	case !utf8.ValidString(p):
		return skerry.Errorf(skerry.CodeInvalid, "password: is not valid UTF-8")
	}
	return nil
}
