package network

import (
	"bytes"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// TestMail: what one cluster seals for another, that one opens, and nobody else; the same mail is the same bytes.
func TestMail(t *testing.T) {
	a, b, c := NewMail([]byte("1"), "a"), NewMail([]byte("2"), "b"), NewMail([]byte("3"), "c")
	info := func(name skerry.ClusterName, m Mail) *wire.SiteInfo {
		return &wire.SiteInfo{Name: name, Key: m.Public()}
	}
	plain := []byte("three workers")
	sealed, ok := a.Seal(info("b", b), "peers", plain)
	if again, _ := a.Seal(info("b", b), "peers", plain); !ok || !bytes.Equal(sealed, again) {
		t.Error("the same mail is not the same item")
	}
	if got, err := b.Open(info("a", a), "peers", sealed); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%q, %v", got, err)
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for _, x := range []struct {
		what   string
		by     Mail
		from   *wire.SiteInfo
		topic  string
		sealed []byte
	}{
		{"another topic", b, info("a", a), "route/x/y/z", sealed},
		{"sent back", a, info("b", b), "peers", sealed},
		{"read by a third site", c, info("a", a), "peers", sealed},
		{"under the name of a third site", b, info("c", a), "peers", sealed},
		{"with a key of a third site", b, info("a", c), "peers", sealed},
		{"of a site that nobody introduced", b, nil, "peers", sealed},
		{"of a site whose key is of low order", b, &wire.SiteInfo{Name: "a"}, "peers", sealed},
		{"cut short", b, info("a", a), "peers", sealed[:20]},
		{"empty", b, info("a", a), "peers", nil},
		{"changed", b, info("a", a), "peers", changed},
	} {
		if got, err := x.by.Open(x.from, x.topic, x.sealed); err == nil {
			t.Errorf("%s: read as %q", x.what, got)
		}
	}
	if other, _ := a.Seal(info("b", b), "route/x/y/z", plain); bytes.Equal(other[:24], sealed[:24]) {
		t.Error("two topics share a nonce")
	}
	for _, to := range []*wire.SiteInfo{nil, {Name: "c"}} {
		if _, ok := a.Seal(to, "peers", plain); ok {
			t.Errorf("mail for %v is sealed", to)
		}
	}
	ab, _ := a.Shared(info("b", b), "relay")
	if ba, ok := b.Shared(info("a", a), "relay"); !ok || ab != ba {
		t.Error("two sites do not share a key")
	}
}
