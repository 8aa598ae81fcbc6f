package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"skerry.dev/skerry/spec"
)

// A worker learns whose signatures count for an organisation from its site alone: its own, else everybody's; an empty list is none.
func TestSigners(t *testing.T) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&k.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	key := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	p := Admission{Trusted: []string{"home"}, Signers: map[string][]string{"guests": {key, key}, "lab": {}, anyOrg: {key}}}
	if problems := p.Problems(); len(problems) > 0 {
		t.Error(problems)
	}
	for org, want := range map[string]int{"guests": 2, "lab": 0, "home": 1, "others": 1} {
		a := &spec.Assignment{Org: org, Signers: []string{"a root's", "own", "keys"}}
		if p.confine(a); len(a.Signers) != want || want == 0 && a.Signers != nil {
			t.Errorf("%s: %v", org, a.Signers)
		}
	}
	none := Admission{}
	a := &spec.Assignment{Signers: []string{"a root's"}}
	if none.confine(a); a.Signers != nil {
		t.Errorf("without a policy: %v", a.Signers)
	}
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Standalone: true, Admission: p})
	c.places["i"] = &placement{A: spec.Assignment{ID: "i", Org: "home", Level: spec.LevelPrivileged}, Worker: "w"}
	c.places["i"].A.Spec.Image = "web:1"
	if got := c.Unadmitted(); len(got) != 1 || !strings.Contains(got[0].Reason.Text, "before the site's policy of signers") || got[0].Reason.Hint == "" {
		t.Errorf("told of %+v", got)
	}
	if p.confine(&c.places["i"].A); len(c.Unadmitted()) != 0 {
		t.Errorf("told of %+v", c.Unadmitted())
	}
	bad := Admission{Signers: map[string][]string{"guests": {key, "-----BEGIN PUBLIC KEY-----"}, anyOrg: {""}}}
	var paths []string
	for _, x := range bad.Problems() {
		if paths = append(paths, x.Path); x.Hint == "" || x.Message == "" {
			t.Errorf("%+v", x)
		}
	}
	if want := []string{"signers.*[0]", "signers.guests[1]"}; !slices.Equal(paths, want) {
		t.Errorf("%v, want %v", paths, want)
	}
}
