//go:build linux

package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"testing"
)

// Whoever has heard of the digest of another's image does not get it by a name of his own, from a store that has it for that other.
func TestDigestOfAnothersImage(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, Options{})
	d := addImage(t, s, "reg.example/theirs/app:1", amd64, gz, layerTar(t, entry{kind: tar.TypeReg, name: "secret", body: "x"}))
	theirs, mine := "reg.example/theirs/app@"+d.String(), "reg.example/mine/x@"+d.String()
	registry := &Handler{Store: openStore(t, Options{}), Registry: "reg.example", Authorize: allow} // has nothing of mine
	source := &Source{BaseURL: "http://" + startHandler(t, registry)}
	for _, sources := range [][]*Source{nil, {source}} {
		if _, err := s.Resolve(ctx, mine, amd64, sources...); !errors.Is(err, ErrNotFound) {
			t.Errorf("resolved: %v", err)
		}
		if _, err := s.Pull(ctx, mine, amd64, nil, sources...); !errors.Is(err, ErrNotFound) {
			t.Errorf("pulled: %v", err)
		}
		if got, err := s.Resolve(ctx, theirs, amd64, sources...); err != nil || got.Digest != d {
			t.Errorf("their own: %v", err)
		}
	}
	ref, err := ParseRef(mine)
	if err != nil || s.Has(ref, d) {
		t.Errorf("it is here as mine, %v", err)
	}
	if ref, _ = ParseRef(theirs); !s.Has(ref, d) {
		t.Error("it is not here as theirs")
	}
	// With the right to it there, it is had by that name, too.
	if _, err := s.Push(ctx, "reg.example/theirs/app:1", source.BaseURL[len("http://"):]+"/mine/x:1", &Source{}, nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Pull(ctx, mine, amd64, nil, source); err != nil || got.Digest != d {
		t.Errorf("pushed to it: %v", err)
	}
}
