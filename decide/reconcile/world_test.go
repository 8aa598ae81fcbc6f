package reconcile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// world joins a source and a replica by a network that loses, repeats and reorders, and gives both a disk.
type world struct {
	t    testing.TB
	rng  *rand.Rand
	now  time.Time
	opt  Options
	src  *Source
	rep  *Replica
	down []wire.Message // on their way to the replica
	up   []wire.Message

	srcDisk, repDisk map[string][]byte

	// The dumb twin: what the set is, and what was ever deleted on purpose in each incarnation.
	want    map[string]string
	deleted map[skerry.Incarnation]map[string]bool
	incs    int
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0),
		opt:     Options{Chunk: 120, Window: 2, Resend: 5 * time.Second, MaxResend: 10 * time.Second},
		srcDisk: map[string][]byte{}, repDisk: map[string][]byte{},
		want: map[string]string{}, deleted: map[skerry.Incarnation]map[string]bool{},
	}
	w.src = NewSource("s", "src/", "a", w.opt)
	w.rep = NewReplica("s", "rep/", w.opt)
	w.save()
	return w
}

func persist(disk map[string][]byte, writes []wire.Write) {
	for _, wr := range writes {
		if wr.Value == nil {
			delete(disk, wr.Key)
		} else {
			disk[wr.Key] = wr.Value
		}
	}
}

func (w *world) save() {
	persist(w.srcDisk, w.src.Flush())
	persist(w.repDisk, w.rep.Flush())
}

func (w *world) put(key, value string) {
	if _, err := w.src.Put(key, []byte(value)); err != nil {
		w.t.Fatal(err)
	}
	w.want[key] = value
}

func (w *world) delete(key string) {
	if w.src.Delete(key) {
		w.noteDelete(key)
	}
	delete(w.want, key)
}

func (w *world) noteDelete(key string) {
	inc := w.src.Incarnation()
	if w.deleted[inc] == nil {
		w.deleted[inc] = map[string]bool{}
	}
	w.deleted[inc][key] = true
}

func (w *world) pump() {
	w.save()
	w.down = append(w.down, w.src.Next(w.now)...)
}

func (w *world) toReplica(m wire.Message) Outcome {
	out := w.rep.Apply(m)
	for _, key := range out.Deleted {
		if !w.deleted[w.rep.Incarnation()][key] {
			w.t.Fatalf("replica deleted %q, which incarnation %q never did", key, w.rep.Incarnation())
		}
	}
	w.save()
	w.up = append(w.up, out.Reply...)
	return out
}

func (w *world) toSource(m wire.Message) {
	w.src.Handle(w.now, m)
	w.pump()
}

func (w *world) connect() {
	w.src.Disconnect()
	w.src.Connect(w.now, w.rep.State())
	w.pump()
}

func (w *world) loadSource(disk map[string][]byte) {
	s, err := LoadSource("s", "src/", "never", disk, w.opt)
	if err != nil {
		w.t.Fatal(err)
	}
	w.src = s
	w.want = map[string]string{}
	for _, k := range s.Keys() {
		v, _ := s.Get(k)
		w.want[k] = string(v)
	}
}

func (w *world) loadReplica(disk map[string][]byte) {
	before := w.rep
	r, err := LoadReplica("s", "rep/", disk, w.opt)
	if err != nil {
		w.t.Fatal(err)
	}
	if r.sum != before.sum || r.orphanSum != before.orphanSum || r.gen != before.gen {
		w.t.Fatalf("replica came back as %+v, was %+v", r.State(), before.State())
	}
	w.rep = r
}

func take(rng *rand.Rand, q *[]wire.Message, anywhere bool) wire.Message {
	i := 0
	if anywhere {
		i = rng.IntN(len(*q))
	}
	m := (*q)[i]
	*q = slices.Delete(*q, i, i+1)
	return m
}

// settle lets the network behave until both sides rest.
func (w *world) settle() {
	w.down, w.up = nil, nil
	w.connect()
	for range 2000 {
		switch {
		case len(w.down) > 0:
			w.toReplica(take(w.rng, &w.down, false))
		case len(w.up) > 0:
			w.toSource(take(w.rng, &w.up, false))
		default:
			_, known := w.src.Orphans()
			if w.src.Settled() && known {
				return
			}
			w.now = w.now.Add(3 * time.Second)
			w.pump()
		}
	}
	w.t.Fatalf("no rest: source %s/%d, peer %+v, replica %+v", w.src.inc, w.src.gen, w.src.peer, w.rep.State())
}

func (w *world) check() {
	w.t.Helper()
	live := map[string]string{}
	for k, it := range w.rep.items {
		live[k] = string(it.value)
	}
	if !maps.Equal(live, w.want) {
		w.t.Fatalf("replica holds %v, want %v", live, w.want)
	}
	raw := map[string][]byte{}
	for k, v := range w.want {
		raw[k] = []byte(v)
	}
	if d := DigestOf(raw); d != w.rep.Digest() || d != w.src.Digest() {
		w.t.Fatalf("digests: twin %x, replica %x, source %x", d, w.rep.Digest(), w.src.Digest())
	}
	orphans, _ := w.src.Orphans()
	var a []string
	for _, o := range orphans {
		a = append(a, o.Key+"="+string(o.Value))
	}
	var b []string
	for _, k := range slices.Sorted(maps.Keys(w.rep.orphans)) {
		b = append(b, k+"="+string(w.rep.orphans[k].value))
	}
	if !slices.Equal(a, b) {
		w.t.Fatalf("source knows orphans %v, replica holds %v", a, b)
	}
}

func (w *world) chaos(steps int, rollbacks bool) {
	backup := maps.Clone(w.srcDisk)
	for range steps {
		key := fmt.Sprintf("k%d", w.rng.IntN(12))
		switch n := w.rng.IntN(100); {
		case n < 18:
			w.put(key, fmt.Sprintf("%d-%0*d", w.rng.IntN(50), w.rng.IntN(60), 1))
			w.pump()
		case n < 26:
			w.delete(key)
			w.pump()
		case n < 55 && len(w.down) > 0:
			w.toReplica(take(w.rng, &w.down, w.rng.IntN(3) == 0))
		case n < 80 && len(w.up) > 0:
			w.toSource(take(w.rng, &w.up, w.rng.IntN(3) == 0))
		case n < 83 && len(w.down) > 0: // lost
			take(w.rng, &w.down, true)
		case n < 85 && len(w.up) > 0:
			take(w.rng, &w.up, true)
		case n < 87 && len(w.down) > 0: // twice
			w.down = append(w.down, w.down[w.rng.IntN(len(w.down))])
		case n < 89 && len(w.up) > 0:
			w.up = append(w.up, w.up[w.rng.IntN(len(w.up))])
		case n < 92:
			w.now = w.now.Add(time.Duration(w.rng.IntN(12)) * time.Second)
			w.pump()
		case n < 94: // a new connection, on which some old frames still turn up
			if w.rng.IntN(2) == 0 {
				w.down, w.up = nil, nil
			}
			w.connect()
		case n < 95:
			w.loadReplica(w.repDisk)
			w.connect()
		case n < 96:
			w.loadSource(w.srcDisk)
			w.connect()
		case n < 97:
			backup = maps.Clone(w.srcDisk)
		case n < 98: // a restore that says so
			w.loadSource(backup)
			w.srcDisk = maps.Clone(backup)
			w.incs++
			w.src.Reincarnate(skerry.Incarnation(fmt.Sprintf("b%d", w.incs)))
			w.connect()
		case n < 99 && rollbacks: // a file copied back: the source does not know
			w.loadSource(backup)
			w.srcDisk = maps.Clone(backup)
			w.now = w.now.Add(time.Second)
			w.down, w.up = nil, nil // a restarted process has new connections; the link carries nothing over
			w.connect()
		case n < 100: // the parent decides about one orphan
			if o, _ := w.src.Orphans(); len(o) > 0 {
				if w.rng.IntN(2) == 0 {
					w.put(o[0].Key, string(o[0].Value))
				} else {
					w.delete(o[0].Key)
				}
				w.pump()
			}
		}
	}
}

func TestChaosConverges(t *testing.T) {
	for _, rollbacks := range []bool{false, true} {
		for seed := range uint64(400) {
			w := newWorld(t, seed)
			for range 3 {
				w.chaos(120, rollbacks)
				w.settle()
				w.check()
			}
			if t.Failed() {
				t.Fatalf("seed %d rollbacks %v", seed, rollbacks)
			}
		}
	}
}

func TestOutboxChaos(t *testing.T) {
	for seed := range uint64(400) {
		outboxChaos(t, seed)
	}
}

func outboxChaos(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	now := time.Unix(0, 0)
	opt := Options{Chunk: 64, Window: 2}
	limits := OutboxLimits{Events: 20, Bytes: 600}
	out, in := NewOutbox("x", "o/", limits, opt), NewInbox("i/")
	outDisk, inDisk := map[string][]byte{}, map[string][]byte{}
	var forth, back []wire.Message
	var sent, got []string
	var lost uint64
	pump := func() {
		persist(outDisk, out.Flush())
		forth = append(forth, out.Next(now)...)
	}
	recv := func(m wire.Message) {
		events, n, reply := in.Accept(m.(*wire.Events))
		lost += n
		for range n {
			got = append(got, "lost")
		}
		for _, e := range events {
			got = append(got, string(e))
		}
		persist(inDisk, in.Flush())
		if reply != nil {
			back = append(back, reply)
		}
	}
	out.Connect(in.State())
	step := func(n int) {
		switch {
		case n < 30:
			e := fmt.Sprintf("e%d-%0*d", len(sent), rng.IntN(40), 0)
			if _, err := out.Append([]byte(e)); err != nil {
				t.Fatal(err)
			}
			sent = append(sent, e)
			pump()
		case n < 60 && len(forth) > 0:
			recv(take(rng, &forth, rng.IntN(3) == 0))
		case n < 80 && len(back) > 0:
			out.Ack(now, take(rng, &back, rng.IntN(3) == 0).(*wire.EventsAck))
			pump()
		case n < 84 && len(forth) > 0:
			take(rng, &forth, true)
		case n < 87 && len(forth) > 0:
			forth = append(forth, forth[rng.IntN(len(forth))])
		case n < 91:
			now = now.Add(6 * time.Second)
			pump()
		case n < 94:
			out.Connect(in.State())
			pump()
		case n < 96:
			var err error
			if out, err = LoadOutbox("never", "o/", outDisk, limits, opt); err != nil {
				t.Fatal(err)
			}
			out.Connect(in.State())
			pump()
		case n < 98:
			var err error
			if in, err = LoadInbox("i/", inDisk); err != nil {
				t.Fatal(err)
			}
			out.Connect(in.State())
			pump()
		}
	}
	for range 400 {
		step(rng.IntN(100))
	}
	for i := 0; out.Len() > 0; i++ {
		if i > 2000 {
			t.Fatalf("seed %d: outbox keeps %d events", seed, out.Len())
		}
		switch {
		case len(forth) > 0:
			recv(take(rng, &forth, false))
		case len(back) > 0:
			out.Ack(now, take(rng, &back, false).(*wire.EventsAck))
			pump()
		default:
			now = now.Add(100 * time.Second)
			pump()
		}
	}
	if len(got) != len(sent) {
		t.Fatalf("seed %d: %d events sent, %d received or counted as lost", seed, len(sent), len(got))
	}
	for i := range got {
		if got[i] != "lost" && got[i] != sent[i] {
			t.Fatalf("seed %d: event %d is %q, want %q", seed, i, got[i], sent[i])
		}
	}
	if in.Lost() != lost || len(outDisk) != 1 {
		t.Fatalf("seed %d: inbox lost %d of %d; %d records left", seed, in.Lost(), lost, len(outDisk))
	}
}
