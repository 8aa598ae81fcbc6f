package olddata_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/cluster"
	clustercore "skerry.dev/skerry/cluster/core"
	"skerry.dev/skerry/internal/olddata"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/link/frame"
	root "skerry.dev/skerry/root/core"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
	"skerry.dev/skerry/store/journal"
	"skerry.dev/skerry/wire"
	worker "skerry.dev/skerry/worker/core"
)

var write = flag.String("olddata", "", "add this program's samples to the set of this name; `make olddata` does all that belongs to one")

const top = "../.."

var roles = map[string]func() map[string]func() any{"root": root.Records, "cluster": cluster.Records, "worker": worker.Records}

// meta are the records about a store as a whole. Those that are JSON have small types of their own packages.
var meta = []string{tier.KeyLife, tier.KeyWriter, "meta/member/", "meta/succession/"}

// kindsOf gives all kinds of a role.
func kindsOf(role string) map[string]func() any {
	kinds := roles[role]()
	maps.Copy(kinds, auth.Records())
	maps.Copy(kinds, journal.Records())
	return kinds
}

// newest is the set that has one of everything that this program keeps.
func newest(t *testing.T) string {
	list := olddata.Versions(t)
	return list[len(list)-1]
}

// TestRecords: every record of every version is of a kind that this program knows, and comes back whole when it is read and written again.
func TestRecords(t *testing.T) {
	// without are the kinds of which the newest set has none.
	without := map[string]string{
		"root root/extents":                        "a site that overlaps with another",
		"root root/zones":                          "a site with a zone of names",
		"root credit/":                             "a site that was doubted",
		"root cordon/":                             "a site that takes nothing new, where tests of the set could not go on",
		"root label/":                              "newer than the newest set",
		"root upgrade/":                            "newer than the newest set",
		"cluster site-upgrade":                     "newer than the newest set",
		"cluster grants":                           "newer than the newest set",
		"cluster acme/":                            "newer than the newest set",
		"cluster acmeaccount":                      "as acme/",
		"cluster leaving/":                         "an instance that is about to end",
		"cluster auth/revoked/":                    "as at the root",
		"cluster cert/":                            "as at the root",
		"cluster past/":                            "as at the root",
		"cluster snapshot/":                        "newer than the newest set",
		"cluster " + wire.PrefixSkipped + "keeps/": "newer than the newest set",
		"worker snapshot-gone/":                    "a snapshot whose files are being removed",
		"worker repaired":                          "a store that was damaged",
	}
	for _, version := range olddata.Versions(t) {
		for role := range roles {
			kinds, found := kindsOf(role), map[string]bool{}
			for _, r := range olddata.Records(t, version, role) {
				kind, make, ok := tier.KindOf(kinds, r.Key)
				found[kind] = true
				switch {
				case !ok && slices.ContainsFunc(meta, func(m string) bool { return strings.HasPrefix(r.Key, m) }):
				case !ok:
					t.Errorf("%s of %s: nobody knows record %s", role, version, r.Key)
				case make != nil:
					if lost, err := wire.Changed(r.Value, make()); err != nil || len(lost) > 0 {
						t.Errorf("%s of %s: record %s: %v is lost, %v", role, version, r.Key, lost, err)
					}
				}
			}
			if version != newest(t) {
				continue
			}
			people := auth.Records()
			for kind := range kinds {
				_, known := without[role+" "+kind]
				if _, ok := people[kind]; !found[kind] && !known && !(ok && role == "worker") {
					t.Errorf("the newest set has no record %s of a %s: give `make olddata` one, or say here why not", kind, role)
				}
			}
		}
	}
}

// TestCores: the cores of this program start from the stores of every version, and find nothing damaged.
func TestCores(t *testing.T) {
	now := time.Now()
	for _, version := range olddata.Versions(t) {
		for role := range roles {
			var load func(string, []byte) error
			var start func(time.Time) wire.Effects
			switch role {
			case "root":
				c := root.New(root.Options{Incarnation: "r", Epoch: 9})
				load, start = c.Load, c.Start
			case "cluster":
				c := clustercore.New(clustercore.Options{Name: "harbour", Incarnation: "c", Term: 9})
				load, start = c.Load, c.Start
			case "worker":
				c := worker.New(worker.Options{Name: "w1"})
				load, start = c.Load, c.Start
			}
			for _, r := range olddata.Records(t, version, role) {
				if kind, _, ok := tier.KindOf(roles[role](), r.Key); !ok || strings.HasPrefix(kind, "meta/") {
					continue
				}
				if err := load(r.Key, r.Value); err != nil {
					t.Errorf("%s of %s: %v", role, version, err)
				}
			}
			for _, e := range start(now).Events {
				if e.Reason == "DamagedRecords" {
					t.Errorf("%s of %s: %s", role, version, e.Text)
				}
			}
		}
	}
}

// TestFactsOfOlderVersions: a cluster keeps nothing of what workers report of themselves that the oldest version does not
// know, unless a feature asks for it. That version would refuse the store else, though nothing newer is in use, and its
// check cannot be changed any more.
func TestFactsOfOlderVersions(t *testing.T) {
	// asked are fields that are kept because an operator has set what they are about, by their numbers.
	asked := map[string]string{"22": "accelerators, of --gpu-class and --tpu-class",
		"25": "external, of nodes of Kubernetes: without it a site that has restarted would give them what they cannot do"}
	var s samples
	if err := json.Unmarshal(olddata.File(t, olddata.Versions(t)[0], samplesFile), &s); err != nil {
		t.Fatal(err)
	}
	codec := wire.New()
	plain := func(data []byte) (out map[any]any) {
		if err := cbor.Unmarshal(data, &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	old, ok := plain(s.Payloads["WorkerReport"])[uint64(2)].(map[any]any)
	if !ok || len(old) < 15 {
		t.Fatalf("the oldest version's sample has the facts %v", old)
	}

	r := wire.WorkerReport{Facts: new(wire.WorkerFacts)}
	olddata.Fill(r.Facts)
	now, c := time.Now(), clustercore.New(clustercore.Options{Name: "harbour", Incarnation: "c", Term: 1})
	c.Start(now)
	c.Step(now, clustercore.ChildUp{Hello: &wire.Hello{Name: "w"}})
	fx := c.Step(now, clustercore.ChildFrame{Name: "w", Msg: &wire.Report{Kind: wire.ReportWorker, Payload: codec.Marshal(&r)}})
	var kept struct{ Facts *wire.WorkerFacts }
	for _, w := range fx.Writes {
		if w.Key == "worker/w" {
			if err := json.Unmarshal(w.Value, &kept); err != nil {
				t.Fatal(err)
			}
		}
	}
	if kept.Facts == nil || kept.Facts.Arch != r.Facts.Arch {
		t.Fatalf("of the facts %v is kept", kept.Facts)
	}

	var newer func(at string, was, is any)
	newer = func(at string, was, is any) {
		switch is := is.(type) {
		case map[any]any:
			was, _ := was.(map[any]any)
			for k, v := range is {
				path := strings.TrimPrefix(fmt.Sprintf("%s.%v", at, k), ".")
				if old, known := was[k]; known {
					newer(path, old, v)
				} else if asked[path] == "" {
					t.Errorf("the record of a worker has field %s of its facts (%v), which the oldest version does not know", path, v)
				}
			}
		case []any:
			was, _ := was.([]any)
			for i := range min(len(was), len(is)) {
				newer(at, was[i], is[i])
			}
		}
	}
	newer("", old, plain(codec.Marshal(kept.Facts)))
}

// TestAuditOfOlderVersions: audit records are written whatever is in use, so they are kept in a form of which the oldest
// version knows each field.
func TestAuditOfOlderVersions(t *testing.T) {
	var s samples
	if err := json.Unmarshal(olddata.File(t, olddata.Versions(t)[0], samplesFile), &s); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), "memory:", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	p, err := auth.OpenPeople(t.Context(), auth.PeopleConfig{Site: "root", Prefix: "user/", Store: st})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var r auth.AuditRecord
		olddata.Fill(&r)
		r.At, r.Request = time.Now(), "abc"
		p.Audit(t.Context(), r)
	}
	list, _, err := st.List(t.Context(), "user/audit/")
	if err != nil || len(list) != 2 {
		t.Fatalf("%d records, %v", len(list), err)
	}
	var old map[string]any
	if err := json.Unmarshal(s.Records["root"]["user/audit/"], &old); err != nil || len(old) < 5 {
		t.Fatalf("the oldest version's sample is %v, %v", old, err)
	}
	for _, rec := range list {
		var is map[string]any
		if err := json.Unmarshal(rec.Value, &is); err != nil {
			t.Fatal(err)
		}
		for k := range is {
			if _, known := old[k]; !known {
				t.Errorf("%s has field %s, which the oldest version does not know: %s", rec.Key, k, rec.Value)
			}
		}
	}
	kept, err := p.AuditRecords(t.Context(), 0, nil)
	if err != nil || len(kept) != 2 || kept[1].Request != "abc" || len(kept[1].Prev) != 64 {
		t.Errorf("%+v comes back, %v", kept, err)
	}
	if r, err := p.VerifyAudit(t.Context(), nil); err != nil || r.Chained != 2 || len(r.Faults) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// samples are the records, payloads and messages of a version with every field set, by name; records are JSON.
type samples struct {
	Records  map[string]map[string]json.RawMessage `json:"records"` // by role and kind
	Payloads map[string][]byte                     `json:"payloads"`
	Messages map[wire.FrameType][]byte             `json:"messages"`
}

const samplesFile = "samples.json"

// payloads are the types of what travels inside sets, events and reports.
func payloads() map[string]any {
	out := map[string]any{}
	for _, v := range []any{new(spec.Assignment), new(wire.Observation), new(wire.Event), new(wire.WorkerReport), new(wire.ClusterReport),
		new(wire.Urgency), new(wire.AgentOrder), new(wire.SiteOrder),
		new(wire.Endpoints), new(wire.Peers), new(wire.Gateway), new(wire.Far), new(wire.OverlayNode), new(wire.AppNetwork),
		new(wire.Route), new(wire.OverlayPeer), new(wire.Want), new(wire.SiteInfo), new(wire.RemoteRoute),
		new(wire.RemotePeers), new(wire.HeardRoute), new(wire.IngressState), new(wire.SiteIngress), new(spec.VolumeClaim), new(spec.KeptVolumes),
		new(spec.KeptSnapshot),
		new(wire.Amendment), new(wire.Amended), new(wire.ClassVerdict), new(wire.VolumeSchedule), new(skerry.Condition)} {
		out[strings.Replace(reflect.TypeOf(v).Elem().Name(), "Remote", "Foreign", 1)] = v // the samples keep the older names
	}
	return out
}

func present(t *testing.T) samples {
	t.Helper()
	s := samples{map[string]map[string]json.RawMessage{}, map[string][]byte{}, map[wire.FrameType][]byte{}}
	for role := range roles {
		s.Records[role] = map[string]json.RawMessage{}
		for kind, make := range kindsOf(role) {
			if make == nil {
				continue
			}
			v := make()
			olddata.Fill(v)
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%s %s: %v", role, kind, err)
			}
			s.Records[role][kind] = data
		}
	}
	for name, v := range payloads() {
		olddata.Fill(v)
		s.Payloads[name] = wire.New().Marshal(v)
	}
	for i := range 256 {
		if m := wire.NewMessage(wire.FrameType(i)); m != nil {
			olddata.Fill(m)
			data, err := frame.NewCodec().Encode(m)
			if err != nil {
				t.Fatal(err)
			}
			s.Messages[m.FrameType()] = data
		}
	}
	return s
}

// TestSamples: what a version wrote with every field set comes back whole. A field that was taken away, or got another
// name, number or kind, is found out here.
func TestSamples(t *testing.T) {
	if *write != "" {
		text, err := json.MarshalIndent(present(t), "", " ")
		if err != nil {
			t.Fatal(err)
		}
		olddata.Write(t, top, *write, samplesFile, text)
		api, err := os.ReadFile(filepath.Join(top, "docs", olddata.OpenAPI))
		if err != nil {
			t.Fatal(err)
		}
		olddata.Write(t, top, *write, olddata.OpenAPI, api)
		return
	}
	for _, version := range olddata.Versions(t) {
		var s samples
		if err := json.Unmarshal(olddata.File(t, version, samplesFile), &s); err != nil {
			t.Fatal(err)
		}
		check := func(what string, data []byte, into any) {
			t.Helper()
			if into == nil {
				t.Errorf("%s of %s: there is no such thing any more", what, version)
				return
			}
			if lost, err := wire.Changed(data, into); err != nil || len(lost) > 0 {
				t.Errorf("%s of %s: %v is lost, %v", what, version, lost, err)
			}
		}
		for role, records := range s.Records {
			kinds := kindsOf(role)
			for kind, data := range records {
				var into any
				if make := kinds[kind]; make != nil {
					into = make()
				}
				check("record "+kind, data, into)
			}
		}
		now := payloads()
		for name, data := range s.Payloads {
			check("payload "+name, data, now[name])
		}
		for n, data := range s.Messages {
			m, _, err := frame.NewReader(bytes.NewReader(data), frame.NewCodec(), frame.MaxFrame).Next()
			if err != nil {
				t.Errorf("message %d of %s: %v", n, version, err)
				continue
			}
			if m == nil {
				t.Errorf("message %d of %s: there is no such thing any more", n, version)
				continue
			}
			check(fmt.Sprintf("message %T", m), data[frame.HeaderSize:], wire.NewMessage(n))
		}
	}
}

// TestSamplesAreWhole: samples have all that this program keeps and sends.
func TestSamplesAreWhole(t *testing.T) {
	s := present(t)
	reached := map[string]bool{}
	var reach func(rt reflect.Type)
	reach = func(rt reflect.Type) {
		switch rt.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array:
			reach(rt.Elem())
		case reflect.Map:
			reach(rt.Key())
			reach(rt.Elem())
		case reflect.Struct:
			if reached[rt.Name()] {
				return
			}
			reached[rt.Name()] = true
			for i := range rt.NumField() {
				reach(rt.Field(i).Type)
			}
		}
	}
	for _, v := range payloads() {
		reach(reflect.TypeOf(v))
	}
	for i := range 256 {
		if m := wire.NewMessage(wire.FrameType(i)); m != nil {
			reach(reflect.TypeOf(m))
		}
	}
	var sources []string
	for _, dir := range []string{".", "spec", "wire", "view"} {
		list, err := filepath.Glob(filepath.Join(top, dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, slices.DeleteFunc(list, func(name string) bool { return strings.HasSuffix(name, "_test.go") })...)
	}
	if len(sources) < 30 {
		t.Fatal(len(sources))
	}
	for _, path := range sources {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(string(text), "\ntype ")[1:] {
			name, body, _ := strings.Cut(part, " struct {")
			body, _, _ = strings.Cut(body, "\n}")
			if strings.Contains(body, ",keyasint") && !strings.ContainsAny(name, " \n") && !reached[name] {
				t.Errorf("%s travels, and no sample has one: add it to payloads", name)
			}
		}
	}
	for role, records := range s.Records {
		for kind, data := range records {
			if len(data) < 3 && kind != "networks" && !strings.HasSuffix(kind, "/seq") {
				t.Errorf("the sample of %s %s is empty", role, kind)
			}
		}
	}
	if len(s.Messages) < 27 || len(s.Payloads) < 22 {
		t.Errorf("%d messages, %d payloads", len(s.Messages), len(s.Payloads))
	}
}
