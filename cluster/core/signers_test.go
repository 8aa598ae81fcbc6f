package core

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/sched"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
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
	c.places["i"] = &placement{A: spec.Assignment{ID: "i", Org: "home", Level: spec.LevelPrivileged}, location: location{Worker: "w"}}
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

// The signatures that a site asks for stay asked for through everything that a root, taken over or not, says of what runs: other
// generations, restarts, tokens. Whatever starts anew, as a restart, a copy on another worker or the end of a cut-off, needs those of the
// present policy.
func TestSignersStay(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	policy := func(key string) Admission { return Admission{Signers: map[string][]string{"guest": {key}}} }
	c := New(Options{Name: "a", Incarnation: "a1", Term: 1, Policies: sched.Policies(), Admission: policy("first")})
	c.Start(now)
	for _, name := range []string{"w1", "w2"} {
		c.Step(now, ChildUp{Hello: &wire.Hello{Name: name, Sets: []wire.SetAck{{Set: "desired", Incarnation: "a1"}}}})
		facts := &wire.WorkerFacts{Levels: true, Signatures: true, Arch: "amd64", Runtimes: []wire.RuntimeReport{{Name: "oci", Passed: true}},
			Capacity: spec.Resources{CPU: 4000, Memory: skerry.GiB, Storage: 64 * skerry.GiB}}
		report := &wire.Report{Kind: wire.ReportWorker, Payload: wire.New().Marshal(&wire.WorkerReport{Facts: facts})}
		c.Step(now, ChildFrame{Name: name, Msg: report})
	}
	a := spec.Assignment{ID: "web-r1", Org: "guest", Service: key("guest", "shop"), Gen: 1, Spec: spec.ServiceSpec{Name: "web"}}
	a.Spec.Image = "web:1"
	a.Fence.RootEpoch = 1
	a.Revision = a.Spec.Revision()
	var fx wire.Effects
	c.intake.accept(now, a, "root", &fx)
	c.Tick(now)
	at := c.places[a.ID].Worker
	if at == "" {
		t.Fatalf("it is not placed: %+v", c.places[a.ID].Obs)
	}
	asked := func(what, worker, want string) {
		t.Helper()
		value, _ := c.Children.Get(worker).Desired.Get(wire.AssignmentKey(a.ID))
		var got spec.Assignment
		if err := c.codec.Unmarshal(value, &got); err != nil || !slices.Equal(got.Signers, []string{want}) {
			t.Errorf("%s: worker %s asks for signatures of %q, not of %s, %v", what, worker, got.Signers, want, err)
		}
	}
	say := func(edit func(a *spec.Assignment)) {
		edit(&a)
		a.Signers = []string{"a root's"}
		c.intake.accept(now, a, "root", &fx)
	}
	asked("placed", at, "first")
	say(func(a *spec.Assignment) { a.Gen++ })
	asked("another generation", at, "first")
	say(func(a *spec.Assignment) { a.Restart++ })
	asked("restarted", at, "first")
	say(func(a *spec.Assignment) {
		held := a.Fence
		a.PriorFence = &held
		a.Fence.RootEpoch++
	})
	asked("a new token", at, "first")

	c.opt.Admission = policy("second")
	say(func(a *spec.Assignment) { a.Gen++ })
	asked("a new policy, under which it goes on", at, "first")
	p := c.places[a.ID]
	c.resume(now, p, &fx)
	asked("after a cut-off", at, "second")
	c.opt.Admission = policy("third")
	say(func(a *spec.Assignment) { a.Restart++ })
	asked("a restart", at, "third")
	c.opt.Admission = policy("fourth")
	other := map[string]string{"w1": "w2", "w2": "w1"}[at]
	c.migrate(now, p, wire.Decision{Chosen: other}, "it is moved", &fx)
	asked("before it is moved", at, "third")
	asked("moved", other, "fourth")
	c.takeOver(now, p, "it was moved", &fx)
	say(func(a *spec.Assignment) { a.Gen++ })
	asked("there", other, "fourth")
}
