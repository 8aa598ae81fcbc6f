//go:build linux

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/link"
	"skerry.dev/skerry/link/mqtt"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/wire"
)

// mockCluster is the parent of one device; what it wants is made by hand, in order or not.
type mockCluster struct {
	t    *testing.T
	auth *auth.Authority
	srv  *link.Server
	addr string

	inc   skerry.Incarnation
	gen   skerry.Generation
	items map[string][]byte // what the device should have

	answers chan wire.Message // to what was sent

	mu       sync.Mutex
	observed *reconcile.Replica
	reports  int
}

func newMockCluster(t *testing.T) *mockCluster {
	t.Helper()
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &mockCluster{t: t, inc: "i1", items: map[string][]byte{}, answers: make(chan wire.Message, 1000), observed: reconcile.NewReplica("observed", "o/", reconcile.Options{})}
	if m.auth, err = auth.OpenAuthority(t.Context(), auth.AuthorityConfig{Site: "harbour", Tier: wire.TierCluster, Store: st}); err != nil {
		t.Fatal(err)
	}
	m.srv, err = link.NewServer(link.ServerConfig{TLS: m.auth.ServerTLS(), Identify: m.auth.Identify, Admit: m.auth.Admit, Handler: m,
		Welcome: func(*link.Peer) (*wire.Welcome, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return &wire.Welcome{Tier: wire.TierCluster, Name: "harbour", Incarnation: m.inc, Sets: []wire.SetAck{m.observed.State()}}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := mqtt.New(mqtt.Config{TLS: m.auth.ExternalTLS(), Identify: m.auth.Identify, Answer: m.auth.Answer, Carry: m.srv.Carry})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m.addr = ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- l.Serve(ln) }()
	t.Cleanup(func() {
		l.Close()
		m.srv.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
		st.Close()
	})
	return m
}

func (m *mockCluster) Up(*link.Peer)          {}
func (m *mockCluster) Down(*link.Peer, error) {}

func (m *mockCluster) Frame(p *link.Peer, msg wire.Message) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch msg := msg.(type) {
	case *wire.SetDelta, *wire.SetChunk:
		out := m.observed.Apply(msg)
		m.observed.Flush()
		for _, r := range out.Reply {
			p.Send(r)
		}
	case *wire.Report:
		m.reports++
	default:
		m.answers <- msg
	}
}

// tell sends something and gives the answer.
func (m *mockCluster) tell(msg wire.Message) wire.Message {
	m.t.Helper()
	p := m.srv.Peer(wire.TierWorker, "dev")
	if p == nil {
		m.t.Fatal("the device is not connected")
	}
	if err := p.Send(msg); err != nil {
		m.t.Fatal(err)
	}
	select {
	case a := <-m.answers:
		return a
	case <-time.After(30 * time.Second):
		m.t.Fatalf("no answer to %+v", msg)
	}
	return nil
}

// change sends a delta with the right digest, and expects that it is taken. A nil value deletes.
func (m *mockCluster) change(items map[string][]byte) {
	m.t.Helper()
	d := &wire.SetDelta{Set: "desired", Incarnation: m.inc, Base: m.gen, Gen: m.gen + 1}
	m.gen++
	for k, v := range items {
		if m.items[k] = v; v == nil {
			delete(m.items, k)
		}
		d.Items = append(d.Items, wire.SetItem{Key: k, Value: v, Gen: m.gen, Deleted: v == nil})
	}
	d.Digest = reconcile.DigestOf(m.items)
	m.acked(m.tell(d))
}

func (m *mockCluster) acked(a wire.Message) *wire.SetAck {
	m.t.Helper()
	ack, ok := a.(*wire.SetAck)
	if !ok || ack.Incarnation != m.inc || ack.Gen != m.gen || ack.Digest != reconcile.DigestOf(m.items) {
		m.t.Fatalf("answered %+v; wanted is %s %d %x", a, m.inc, m.gen, reconcile.DigestOf(m.items))
	}
	return ack
}

func (m *mockCluster) wants(a wire.Message, reason wire.SetWantReason) {
	m.t.Helper()
	if w, ok := a.(*wire.SetWant); !ok || w.Reason != reason || w.Gen != m.gen {
		m.t.Fatalf("answered %+v, not set-want %s", a, reason)
	}
}

func (m *mockCluster) observation(id string) (o wire.Observation, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, orphaned, has := m.observed.Get("inst/" + id)
	if has && !orphaned {
		if err := json.Unmarshal(v, &o); err != nil {
			m.t.Error(err)
		}
	}
	return o, has && !orphaned
}

func (m *mockCluster) await(id, what string, ok func(o wire.Observation, has bool) bool) {
	m.t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		o, has := m.observation(id)
		if ok(o, has) {
			return
		}
		if time.Now().After(end) {
			m.t.Fatalf("waited in vain: %s: %+v", what, o)
		}
	}
}

// assignment is what the cluster wants, as JSON.
func assignment(id string, seq uint64, edit func(a *spec.Assignment)) []byte {
	s := process("s", "/bin/sleep", "1000")
	three, grace := 3, spec.Duration(10*time.Second)
	s.Restart = spec.RestartSpec{Policy: "always", MaxAttempts: &three, Window: spec.Duration(time.Minute), Backoff: spec.Duration(10 * time.Millisecond), MaxBackoff: spec.Duration(time.Second)}
	s.TerminationGrace = &grace
	a := spec.Assignment{ID: skerry.InstanceID(id), Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "a"}, Service: "s"},
		Gen: 1, Revision: "r1", Spec: s, Fence: skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: seq}}
	if edit != nil {
		edit(&a)
	}
	out, err := json.Marshal(&a)
	if err != nil {
		panic(err)
	}
	return out
}

// TestExternalAgentProtocol holds the agent in Python to the page that describes the protocol, with a cluster that also says what no
// cluster should.
func TestExternalAgentProtocol(t *testing.T) {
	m := newMockCluster(t)
	token, _, err := m.auth.CreateToken(t.Context(), auth.TokenOptions{Tier: wire.TierWorker})
	if err != nil {
		t.Fatal(err)
	}
	v := newDevice(t, "dev", m.addr, filepath.Join(t.TempDir(), "device"))
	v.start("--join", token, "--name", "dev")
	awaiting := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("waited in vain: %s", what)
			}
		}
	}
	awaiting("it reports", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.reports > 0 })
	running := func(o wire.Observation, _ bool) bool { return o.State == skerry.Running && o.Ready }
	seq := func(n uint64) func(o wire.Observation, _ bool) bool {
		return func(o wire.Observation, has bool) bool { return running(o, has) && o.Fence.Sequence == n }
	}

	// A snapshot in two parts, of which the second comes twice.
	m.items["inst/a"], m.items["inst/b"], m.items["later/x"] = assignment("a", 5, nil), assignment("b", 5, nil), []byte{0xa1, 1, 2}
	m.gen = 3
	head := wire.SetChunk{Set: "desired", Incarnation: m.inc, Gen: m.gen, Digest: reconcile.DigestOf(m.items)}
	one, two := head, head
	one.Items = []wire.SetItem{{Key: "inst/a", Value: m.items["inst/a"], Gen: 1}, {Key: "later/x", Value: m.items["later/x"], Gen: 2}}
	two.Items, two.Index, two.Last = []wire.SetItem{{Key: "inst/b", Value: m.items["inst/b"], Gen: 3}}, 1, true
	if a, ok := m.tell(&two).(*wire.SetWant); !ok || a.Reason != wire.WantGap {
		t.Errorf("a part in the middle: %+v", a)
	}
	if a, ok := m.tell(&one).(*wire.SetAck); !ok || a.Gen != 0 || a.PartNext != 1 || a.PartGen != 3 || a.PartDigest != head.Digest {
		t.Errorf("the first part: %+v", a)
	}
	m.acked(m.tell(&two))
	m.acked(m.tell(&two))
	m.await("a", "it runs", running)
	m.await("b", "it runs", running)
	pid := v.pids()["a"]

	// Deltas that do not fit.
	bad := &wire.SetDelta{Set: "desired", Incarnation: m.inc, Base: m.gen, Gen: m.gen + 1, Items: []wire.SetItem{{Key: "inst/a", Gen: m.gen + 1, Deleted: true}}}
	m.wants(m.tell(bad), wire.WantSnapshot)
	bad.Base, bad.Gen = m.gen+1, m.gen+2
	m.wants(m.tell(bad), wire.WantGap)
	bad.Base, bad.Gen = 0, 1
	m.acked(m.tell(bad))
	bad.Incarnation, bad.Base, bad.Gen = "another", m.gen, m.gen+1
	m.wants(m.tell(bad), wire.WantSnapshot)

	// Tokens.
	m.change(map[string][]byte{"inst/a": assignment("a", 4, nil)})
	m.change(map[string][]byte{"inst/a": assignment("a", 6, func(a *spec.Assignment) {
		a.PriorFence = &skerry.Fence{RootEpoch: 1, ClusterTerm: 1, Sequence: 5}
	})})
	m.await("a", "it has the token, under which the lower one was not heard", seq(6))
	if got := v.pids()["a"]; got != pid || pid == 0 {
		t.Errorf("process %d, then %d: taking a token over is no restart", pid, got)
	}
	m.change(map[string][]byte{"inst/a": assignment("a", 7, nil)})
	m.await("a", "it begins anew", seq(7))
	if got := v.pids()["a"]; got == pid {
		t.Errorf("process %d goes on under a token that was not meant for it", got)
	}
	pid = v.pids()["a"]
	m.change(map[string][]byte{"inst/a": assignment("a", 7, func(a *spec.Assignment) { a.Restart, a.Gen = 1, 2 })})
	m.await("a", "it was restarted", func(o wire.Observation, has bool) bool {
		return running(o, has) && o.Restart == 1 && o.Restarts == 1 && o.Gen == 2 && v.pids()["a"] != pid
	})
	pid = v.pids()["a"]

	// What cannot be read, or would lead astray, and what it cannot do.
	m.change(map[string][]byte{"inst/x": []byte("{"), "inst/y": assignment("z", 1, nil), "inst/../../x": assignment("../../x", 1, nil), "inst/c": {0xa0}})
	m.change(map[string][]byte{"inst/d": assignment("d", 1, func(a *spec.Assignment) { a.Spec.Ports = []spec.Port{{Port: 80, HostPort: 81}} }),
		"inst/e": assignment("e", 1, func(a *spec.Assignment) { a.Spec.Image = "web:1" }),
		"inst/f": assignment("f", 1, func(a *spec.Assignment) { a.Spec.Volumes = []spec.Volume{{Name: "v"}} }),
		"inst/g": assignment("g", 1, func(a *spec.Assignment) { a.Spec.Command = []string{"/there/is/none"} })})
	for id, reason := range map[string]string{"d": "unsupported: hostPort 81", "e": "unsupported: image", "f": "unsupported: volumes", "g": "No such file"} {
		m.await(id, reason, func(o wire.Observation, _ bool) bool {
			return o.State == skerry.Failed && strings.Contains(o.Reason, reason) && (id != "g" || o.Restarts == 3 && o.Exit.Code == 127)
		})
	}
	for _, id := range []string{"x", "y", "z", "c"} {
		if o, has := m.observation(id); has {
			t.Errorf("%s: %+v", id, o)
		}
	}

	// A job, and one that does not heed TERM.
	m.change(map[string][]byte{"inst/job": assignment("job", 1, func(a *spec.Assignment) {
		a.Spec.Command, a.Spec.Restart.Policy = []string{"/bin/sh", "-c", `test "$A" = b`}, "onFailure"
		a.Spec.Env = map[string]string{"A": "b"}
	}), "inst/stubborn": assignment("stubborn", 1, func(a *spec.Assignment) {
		grace := spec.Duration(100 * time.Millisecond)
		a.Spec.Command, a.Spec.TerminationGrace = []string{"/bin/sh", "-c", `trap : TERM; while :; do sleep 0.1; done`}, &grace
	})})
	m.await("job", "it is done", func(o wire.Observation, _ bool) bool {
		return o.State == skerry.Terminated && o.Exit != nil && o.Exit.Code == 0
	})
	m.await("stubborn", "it runs", running)
	m.change(map[string][]byte{"inst/stubborn": nil})
	m.await("stubborn", "it is gone", func(_ wire.Observation, has bool) bool { return !has })
	if n := v.pids()["stubborn"]; n != 0 {
		t.Errorf("%d runs on", n)
	}

	// Its supervisor is killed: what it left running ends, and there is one process again.
	orphaned := v.pids()["a"]
	v.killSupervisor("a")
	m.await("a", "it runs again", func(o wire.Observation, has bool) bool {
		n := v.pids()["a"]
		return running(o, has) && o.Restarts == 2 && n != orphaned && n != 0
	})
	if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", orphaned)); err == nil && len(cmdline) > 0 { // nobody may have waited for it yet
		t.Errorf("process %d runs on beside the new one: %q", orphaned, cmdline)
	}
	pid = v.pids()["a"]

	// A process that says more than may be kept.
	m.change(map[string][]byte{"inst/loud": assignment("loud", 1, func(a *spec.Assignment) {
		a.Spec.Command, a.Spec.Logs.MaxSize = []string{"/bin/sh", "-c", "seq 300000; echo the end; exec sleep 1000"}, 128<<10
	})})
	loud := filepath.Join(v.dir, "instances", "loud", "1", "output")
	awaiting("it has said all", func() bool {
		text, _ := os.ReadFile(loud)
		return strings.HasSuffix(string(text), "the end\n")
	})
	for _, f := range []string{loud, loud + ".1"} {
		if st, err := os.Stat(f); err != nil || st.Size() > 192<<10 {
			t.Errorf("%s: %v, %v", f, st, err)
		}
	}
	m.change(map[string][]byte{"inst/loud": nil})

	// A new life of the cluster's store that has forgotten one of them: it runs on, and is told of.
	old := m.inc
	m.inc, m.gen, m.items = "i2", 1, map[string][]byte{"inst/b": m.items["inst/b"]}
	ack := m.acked(m.tell(&wire.SetChunk{Set: "desired", Incarnation: m.inc, Gen: m.gen, Digest: reconcile.DigestOf(m.items), Last: true,
		Items: []wire.SetItem{{Key: "inst/b", Value: m.items["inst/b"], Gen: 1}}}))
	if ack.Orphans == 0 {
		t.Errorf("no orphans: %+v", ack)
	}
	held, ok := m.tell(&wire.SetHeldWant{Set: "desired", Digest: ack.OrphanDigest}).(*wire.SetHeld)
	if !ok || len(held.Items) != int(ack.Orphans) || held.Digest != ack.OrphanDigest || !held.Last {
		t.Fatalf("%+v", held)
	}
	named := map[string][]byte{}
	for _, it := range held.Items {
		named[it.Key] = it.Value
	}
	if reconcile.DigestOf(named) != ack.OrphanDigest || named["inst/a"] == nil {
		t.Errorf("held: %q", named)
	}
	m.wants(m.tell(&wire.SetDelta{Set: "desired", Incarnation: old, Base: 1, Gen: 900}), wire.WantRetired)
	if got := v.pids()["a"]; got != pid {
		t.Errorf("process %d, then %d: an orphan runs on", pid, got)
	}
	gone := map[string][]byte{}
	for k := range named {
		gone[k] = nil
	}
	m.change(gone)
	m.await("a", "it was ended", func(_ wire.Observation, has bool) bool { return !has })

	// The device is switched off and on, without a word from the cluster.
	v.kill(syscall.SIGKILL)
	before := v.pids()["b"]
	if before == 0 {
		t.Fatal("nothing runs")
	}
	v.endAll()
	p := m.srv.Peer(wire.TierWorker, "dev")
	if p != nil {
		<-p.Done()
	}
	v.addr = "127.0.0.1:1" // where nobody listens
	v.start()
	awaiting("it runs again", func() bool { n := v.pids()["b"]; return n != 0 && n != before })
	v.kill(syscall.SIGTERM)
	if v.pids()["b"] == 0 {
		t.Error("the end of the agent ended what it runs")
	}
	v.addr = m.addr
	v.start()
	m.await("b", "it is told of", func(o wire.Observation, has bool) bool { return running(o, has) && o.Restarts == 1 })
	v.kill(syscall.SIGTERM)
	v.start("--cleanup")
	<-v.done
	if left := v.pids(); len(left) > 0 {
		t.Errorf("after the clean-up: %v", left)
	}
	fmt.Fprintln(t.Output(), "done")
}
