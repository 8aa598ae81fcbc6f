package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	cluster "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/decide/apps"
	"skerry.dev/skerry/decide/members"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/internal/testenv"
	"skerry.dev/skerry/link/frame"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

// The fuzz targets of this file give the cores, in a fleet where applications run, what decoders have let through: frames, items of
// sets, reports, events and hellos of a hostile child or parent, manifests and commands of users, several in a row, with time between
// them. Nothing may panic, the books of the sites must balance, and a core must be able to start from what it has stored.
//
// Input is a list of operations: a byte for the kind, one for who sends it, two for the length of what follows, in big endian.

// Kinds of operations.
const (
	fuzzFrame   = iota // a frame's type, then its payload
	fuzzItem           // the key of an item of the sender's set, a zero byte, its value
	fuzzDelete         // the key of such an item
	fuzzReport         // the kind, a zero byte, the payload
	fuzzEvent          // an event
	fuzzHello          // a hello's payload; its name is the sender's
	fuzzApply          // a manifest
	fuzzCommand        // a byte for the command, one for its number
	fuzzTime           // a byte: seconds until the next
	fuzzBreak          // the sender's link goes down and comes back
	fuzzTwist          // of what the sender said last, or of an item of its set, one value is another: four bytes choose which
	fuzzKinds
)

const fuzzManifest = `{"apiVersion": "skerry/v1", "kind": "Application", "metadata": {"name": "shop"}, "spec": {"services": [
 {"name": "web", "image": "web:1", "replicas": 2, "resources": {"cpu": "100m", "memory": "64Mi"}, "ports": [{"name": "http", "port": 80, "hostPort": -1}], "ingress": [{"host": "shop.example.com", "port": "http"}],
  "probes": {"readiness": {"http": {"port": 80, "path": "/"}}}, "links": [{"service": "data", "maxLatency": "50ms"}]},
 {"name": "data", "image": "data:1", "resources": {"cpu": "100m", "memory": "64Mi"}, "ports": [{"port": 5432}]},
 {"name": "once", "image": "once:1", "mode": "job", "job": {"completions": 2}},
 {"name": "nightly", "image": "once:1", "mode": "cron", "cron": {"schedule": "*/1 * * * *"}},
 {"name": "every", "image": "agent:1", "mode": "perWorker", "resources": {"cpu": "10m", "memory": "8Mi"}}]}}`

var fuzzApps = []string{fuzzManifest, strings.ReplaceAll(fuzzManifest, "web:1", "web:2"),
	`{"apiVersion": "skerry/v1", "kind": "Application", "metadata": {"name": "plain"}, "spec": {"services": [{"name": "web", "image": "web:1", "replicas": 3}]}}`}

// fuzzWorld makes a fleet in which applications run.
func fuzzWorld(t testing.TB) *World {
	w := New(1)
	w.quiet, w.Audit = true, true
	w.AddCluster("a")
	w.AddWorker("a", "w1", facts(4000))
	w.AddWorker("a", "w2", facts(2000))
	w.AddCluster("b")
	w.AddWorker("b", "w1", facts(2000))
	w.Run(time.Second)
	for _, text := range []string{fuzzApps[0], fuzzApps[2]} {
		app, err := spec.DecodeApplication([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if err, bad := w.Do(w.Root, apps.Apply{App: *app, Actor: "t"}).(error); bad {
			t.Fatal(err)
		}
	}
	w.Run(3 * time.Second)
	return w
}

// op is one operation.
type fuzzOp struct {
	kind, from byte
	data       []byte
}

func (o fuzzOp) append(out []byte) []byte {
	data := o.data[:min(len(o.data), 1<<16-1)]
	return append(binary.BigEndian.AppendUint16(append(out, o.kind, o.from), uint16(len(data))), data...)
}

func fuzzOps(data []byte) (out []fuzzOp) {
	for len(data) >= 4 && len(out) < 16 {
		n := min(int(binary.BigEndian.Uint16(data[2:])), len(data)-4)
		out = append(out, fuzzOp{data[0] % fuzzKinds, data[1], data[4 : 4+n]})
		data = data[4+n:]
	}
	return out
}

// fuzzed is a core that gets what is hostile.
type fuzzed struct {
	w *World
	n *Node
	// senders are the nodes whose words it gets, each a child or the parent.
	senders []*Node
	codec   *frame.Codec
	heard   map[*Node][]wire.Message // the last ones of each sender
}

// fuzzValues are what values of messages are replaced by.
var fuzzValues = []any{nil, uint64(0), uint64(1), uint64(1 << 31), uint64(1<<63 - 1), ^uint64(0), int64(-1), int64(-1 << 63), 0.5, math.NaN(), math.Inf(1), -1e300, "", "x", "../x", "a/b/c", "web", "default",
	strings.Repeat("x", 5000), true, false, []byte{}, []byte("x"), []any{}, []any{nil}, map[any]any{}}

// twist changes one value of a message, an item or a report, at any depth. at counts them down.
func twist(v any, at *int, to any) any {
	if *at--; *at < 0 {
		*at = 1 << 30
		return to
	}
	switch x := v.(type) {
	case map[any]any:
		for _, k := range slices.SortedFunc(maps.Keys(x), func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) {
			x[k] = twist(x[k], at, to)
		}
	case []any:
		for i := range x {
			x[i] = twist(x[i], at, to)
		}
	}
	return v
}

// twisted gives CBOR with one value replaced; ok is false if it is none.
func (f *fuzzed) twisted(data []byte, at int, to any) (out []byte, ok bool) {
	var v any
	if f.codec.Unmarshal(data, &v) != nil {
		return nil, false
	}
	out, err := f.codec.Marshal(twist(v, &at, to))
	return out, err == nil
}

func (f *fuzzed) twist(from *Node, set *reconcile.Source, which, leaf, value byte, item bool) {
	to := fuzzValues[int(value)%len(fuzzValues)]
	if item {
		if set == nil || set.Len() == 0 {
			return
		}
		keys := set.Keys()
		key := keys[int(which)%len(keys)]
		old, _ := set.Get(key)
		if data, ok := f.twisted(old, int(leaf), to); ok {
			_, _ = set.Put(key, data)
			f.w.tick(from)
		}
		return
	}
	list := f.heard[from]
	if len(list) == 0 {
		return
	}
	m := list[int(which)%len(list)]
	if r, ok := m.(*wire.Report); ok {
		if data, ok := f.twisted(r.Payload, int(leaf), to); ok {
			f.frame(from, &wire.Report{Kind: r.Kind, Payload: data})
		}
		return
	}
	data, err := f.codec.Encode(m)
	if err != nil {
		return
	}
	if data, ok := f.twisted(data[frame.HeaderSize:], int(leaf), to); ok {
		m, _ := f.codec.Decode(m.FrameType(), data)
		f.frame(from, m)
	}
}

// listen keeps what senders say.
func (f *fuzzed) listen() {
	f.heard = map[*Node][]wire.Message{}
	f.w.tap = func(from, to *Node, msg wire.Message) {
		if to == f.n {
			list := append(f.heard[from], msg)
			f.heard[from] = list[max(0, len(list)-16):]
		}
	}
}

// set gives the set that a sender fills for the core, and its events; nil: it has none.
func (f *fuzzed) set(from *Node) (*reconcile.Source, *members.Parent) {
	if from == f.w.parentOf(f.n) {
		switch c := from.Core.(type) {
		case *root.Core:
			return c.Children.Get(f.n.Name).Desired, nil
		case *cluster.Core:
			return c.Children.Get(short(f.n)).Desired, nil
		}
	}
	switch c := from.Core.(type) {
	case *cluster.Core:
		return c.Up.Observed, c.Up
	case *worker.Core:
		return c.Up.Observed, c.Up
	}
	return nil, nil
}

// frame has the core get a frame of a sender.
func (f *fuzzed) frame(from *Node, m wire.Message) {
	if m == nil {
		return
	}
	switch f.n.Core.(type) {
	case *root.Core:
		f.w.Do(f.n, root.ChildFrame{Name: from.Name, Msg: m})
	case *cluster.Core:
		if from == f.w.Root {
			f.w.Do(f.n, cluster.ParentFrame{Msg: m})
		} else {
			f.w.Do(f.n, cluster.ChildFrame{Name: short(from), Msg: m})
		}
	case *worker.Core:
		f.w.Do(f.n, worker.ParentFrame{Msg: m})
	}
}

func (f *fuzzed) do(o fuzzOp) {
	from := f.senders[int(o.from)%len(f.senders)]
	set, up := f.set(from)
	switch o.kind {
	case fuzzFrame:
		if len(o.data) > 0 {
			m, _ := f.codec.Decode(wire.FrameType(o.data[0]), o.data[1:])
			f.frame(from, m)
		}
	case fuzzItem:
		key, value, _ := bytes.Cut(o.data, []byte{0})
		if set != nil {
			_, _ = set.Put(string(key), value)
			f.w.tick(from)
		}
	case fuzzDelete:
		if set != nil {
			set.Delete(string(o.data))
			f.w.tick(from)
		}
	case fuzzReport:
		kind, payload, _ := bytes.Cut(o.data, []byte{0})
		f.frame(from, &wire.Report{Kind: string(kind), Payload: payload})
	case fuzzEvent:
		if up != nil {
			_, _ = up.Events.Append(o.data)
			f.w.tick(from)
		}
	case fuzzHello:
		h := &wire.Hello{}
		if f.codec.Unmarshal(o.data, h) != nil || from == f.w.parentOf(f.n) {
			return
		}
		h.Name = short(from)
		if f.n == f.w.Root {
			f.w.Do(f.n, root.ChildUp{Hello: h})
		} else {
			f.w.Do(f.n, cluster.ChildUp{Hello: h})
		}
	case fuzzApply:
		if app, err := spec.DecodeApplication(o.data); err == nil {
			f.apply(*app)
		}
	case fuzzCommand:
		if len(o.data) > 1 {
			f.command(o.data[0], int(int8(o.data[1])))
		}
	case fuzzTime:
		if len(o.data) > 0 {
			f.w.Run(time.Duration(o.data[0]) * time.Second)
		}
	case fuzzTwist:
		if len(o.data) >= 4 {
			f.twist(from, set, o.data[0], o.data[1], o.data[2], o.data[3]&1 == 0)
		}
	case fuzzBreak:
		child := from
		if from == f.w.parentOf(f.n) {
			child = f.n
		}
		f.w.Cut(child)
		f.w.Run(time.Second)
		f.w.Heal(child)
	}
}

func (f *fuzzed) apply(app spec.Application) {
	switch c := f.n.Core.(type) {
	case *root.Core:
		_, _ = c.Apps.Plan(f.w.Now, app, nil)
	case *cluster.Core:
		_, _ = c.PlanApp(f.w.Now, app, nil)
	default:
		return
	}
	f.w.Do(f.n, apps.Apply{App: app, Actor: "t", Register: len(app.Metadata.Labels) == 1})
}

// command has the core carry out what users ask for.
func (f *fuzzed) command(kind byte, n int) {
	if _, ok := f.n.Core.(*worker.Core); ok {
		return
	}
	k := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: []string{"web", "data", "once", ""}[n&3]}
	list := []any{apps.Scale{Service: k, Replicas: n, Actor: "t"}, apps.Restart{Service: k, Actor: "t"}, apps.Undo{Service: k, Actor: "t"}, apps.Pause{Service: k}, apps.Resume{Service: k},
		apps.Delete{Key: k.App}, apps.Deploy{Key: k.App}}
	var ids []skerry.InstanceID
	switch c := f.n.Core.(type) {
	case *root.Core:
		for _, i := range c.Apps.InstancesOf(k.App) {
			ids = append(ids, i.ID)
		}
	case *cluster.Core:
		for _, i := range c.Instances() {
			ids = append(ids, i.ID)
		}
		list = append(list, cluster.DrainWorker{Name: "w1", Parallel: n}, cluster.Rebalance{}, cluster.CordonWorker{Name: "w1", Reason: "x"}, cluster.CordonWorker{Name: "w1"},
			cluster.RemoveWorker{Name: "w2"}, cluster.UpgradeWorker{Name: "w1"})
	}
	if len(ids) > 0 {
		slices.Sort(ids)
		id := ids[int(uint8(n))%len(ids)]
		list = append(list, apps.DeleteInstance{ID: id})
		if f.n == f.w.Root {
			list = append(list, root.MoveToCluster{ID: id, To: []string{"a", "b", ""}[int(uint8(n))%3]})
		} else {
			list = append(list, cluster.MigrateInstance{ID: id, To: []string{"w1", "w2", ""}[int(uint8(n))%3], Force: n < 0})
		}
	}
	f.w.Do(f.n, list[int(kind)%len(list)])
}

// fuzzRun gives a core all operations, then time, and then another start.
func fuzzRun(t *testing.T, data []byte, pick func(w *World) (*Node, []*Node)) {
	w := fuzzWorld(t)
	f := &fuzzed{w: w, codec: frame.NewCodec()}
	f.n, f.senders = pick(w)
	f.listen()
	w.Run(11 * time.Second) // until all have reported
	for _, o := range fuzzOps(data) {
		f.do(o)
		w.Run(50 * time.Millisecond)
	}
	w.Run(10 * time.Second)
	w.Kill(f.n)
	w.Restart(f.n, f.n.facts)
	w.Run(5 * time.Second)
	for _, fault := range w.Faults {
		t.Error(fault)
	}
}

// seed adds what honest members say to each other as words of a sender, and the manifests.
func fuzzSeed(f *testing.F, pick func(w *World) (*Node, []*Node)) {
	var frames, items, rest []byte
	codec := frame.NewCodec()
	seen := map[string]bool{}
	w := fuzzWorld(f)
	n, senders := pick(w)
	z := &fuzzed{w: w, n: n, codec: codec}
	for at, from := range senders {
		set, _ := z.set(from)
		if set == nil {
			continue
		}
		for i, key := range set.Keys() {
			value, _ := set.Get(key)
			kind, _, _ := strings.Cut(key, "/")
			one := fuzzOp{fuzzItem, byte(at), append([]byte(key+"\x00"), value...)}.append(nil)
			if !seen[kind] {
				f.Add(append(one, fuzzOp{fuzzDelete, byte(at), []byte(key)}.append(nil)...))
			}
			if seen[kind] = true; i < 12 {
				items = append(items, one...)
			}
		}
	}
	w.tap = func(from, to *Node, msg wire.Message) {
		at := slices.Index(senders, from)
		data, err := codec.Encode(msg)
		if to != n || at < 0 || err != nil {
			return
		}
		one := fuzzOp{fuzzFrame, byte(at), append([]byte{byte(msg.FrameType())}, data[frame.HeaderSize:]...)}.append(nil)
		if r, ok := msg.(*wire.Report); ok {
			one = fuzzOp{fuzzReport, byte(at), append([]byte(r.Kind+"\x00"), r.Payload...)}.append(nil)
		}
		if len(frames) < 2000 {
			frames = append(frames, one...)
		}
	}
	w.Do(w.Root, apps.Scale{Service: skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "plain"}, Service: "web"}, Replicas: 1})
	w.Run(20 * time.Second)
	w.tap = nil
	for i, text := range fuzzApps {
		rest = append(rest, fuzzOp{fuzzApply, 0, []byte(text)}.append(nil)...)
		rest = append(rest, fuzzOp{fuzzCommand, 0, []byte{byte(i), 3}}.append(nil)...)
		rest = append(rest, fuzzOp{fuzzBreak, byte(i), nil}.append(nil)...)
	}
	hello, _ := codec.Marshal(&wire.Hello{Name: "a", Sets: senders[0].sets0()})
	event, _ := codec.Marshal(wire.Event{Reason: "X", App: skerry.AppKey{Namespace: "default", Name: "shop"}})
	rest = append(rest, fuzzOp{fuzzHello, 0, hello}.append(fuzzOp{fuzzEvent, 0, event}.append(nil))...)
	k := skerry.AppKey{Namespace: "default", Name: "shop"}
	amend, _ := codec.Marshal(&wire.Amendment{App: k, Seq: 9, Base: 1, Author: "x", Services: []wire.AmendedService{{Name: "web", Replicas: 3, Spec: &spec.ServiceSpec{Name: "web"}}}})
	f.Add(fuzzOp{fuzzItem, 0, append([]byte(wire.AmendmentKey(k)+"\x00"), amend...)}.append(nil))
	f.Add(frames)
	f.Add(items)
	f.Add(rest)
	for n := range byte(8) {
		var twists []byte
		for i := range byte(12) {
			twists = fuzzOp{fuzzTwist, i, []byte{i * 3, 5*n + i, 7*n + 3*i, i / 2}}.append(twists)
		}
		f.Add(twists)
	}
}

func (n *Node) sets0() []wire.SetAck {
	if n.sets == nil {
		return nil
	}
	return n.sets(n.Core)
}

func fuzzTheRoot(w *World) (*Node, []*Node) { return w.Root, []*Node{w.Clusters["a"], w.Clusters["b"]} }
func fuzzTheCluster(w *World) (*Node, []*Node) {
	return w.Clusters["a"], []*Node{w.Workers["a/w1"], w.Root}
}
func fuzzTheWorker(w *World) (*Node, []*Node) { return w.Workers["a/w1"], []*Node{w.Clusters["a"]} }

func FuzzRootCore(f *testing.F) {
	fuzzSeed(f, fuzzTheRoot)
	f.Fuzz(func(t *testing.T, data []byte) { fuzzRun(t, data, fuzzTheRoot) })
}

func FuzzClusterCore(f *testing.F) {
	fuzzSeed(f, fuzzTheCluster)
	f.Fuzz(func(t *testing.T, data []byte) { fuzzRun(t, data, fuzzTheCluster) })
}

func FuzzWorkerCore(f *testing.F) {
	fuzzSeed(f, fuzzTheWorker)
	f.Fuzz(func(t *testing.T, data []byte) { fuzzRun(t, data, fuzzTheWorker) })
}

// TestTwistedMessages gives each core messages and items in which single values are not what any member sends.
func TestTwistedMessages(t *testing.T) {
	for name, pick := range map[string]func(w *World) (*Node, []*Node){"root": fuzzTheRoot, "cluster": fuzzTheCluster, "worker": fuzzTheWorker} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(testenv.Times(20, 300)) {
				rng := rand.New(rand.NewPCG(seed, 5))
				var data []byte
				for range 14 {
					data = fuzzOp{fuzzTwist, byte(rng.Uint32()), []byte{byte(rng.Uint32()), byte(rng.IntN(60)), byte(rng.Uint32()), byte(rng.Uint32())}}.append(data)
				}
				if fuzzRun(t, data, pick); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
}
