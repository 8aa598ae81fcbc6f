package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
)

// kept gives volumes as a site with a key has a worker keep them.
func kept(c *Codec, key []byte, worker, org string) []byte {
	of := skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "db"}
	k := spec.KeptVolumes{Service: of, Ordinal: 1, Org: org}
	k.Seal = c.SealVolumes(key, worker, k)
	return c.Marshal(&k)
}

// A seal of what Marshal gave is that of what a child has of it: nothing that a manifest can say is written otherwise once it was read.
func TestSealOfOwn(t *testing.T) {
	c, key := New(), []byte("key")
	files, _ := filepath.Glob("../examples/*/*.yaml")
	seen := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for text := range strings.SplitSeq(string(data), "\n---\n") {
			doc, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				continue
			}
			app, err := spec.DecodeApplication(doc)
			if err != nil {
				continue
			}
			app.SetDefaults()
			for _, s := range app.Spec.Services {
				seen++
				as := &spec.Assignment{ID: "x-1", Service: skerry.ServiceKey{App: app.Key(), Service: s.Name}, Gen: 3, Revision: s.Revision(), Spec: s,
					Deadline: time.Now(), Due: time.Now().In(time.FixedZone("", 3600)), PriorFence: &skerry.Fence{RootEpoch: 1}, Failover: true,
					Successor: &spec.Successor{Revision: "a", Spec: s}, Exchange: spec.ExchangeHeld, Digest: map[string]string{"b": "c", "a": "d"}}
				as.Seal = c.SealOwn(key, "site", c.Marshal(as))
				if !c.Sealed(key, "site", c.Marshal(as)) {
					t.Errorf("%s, service %s: a site's copy of it is not sealed", file, s.Name)
				}
				if as.Gen++; c.Sealed(key, "site", c.Marshal(as)) {
					t.Errorf("%s, service %s: another generation has the seal", file, s.Name)
				}
			}
		}
	}
	if seen < 3 {
		t.Errorf("got %d services in the examples, want some", seen)
	}
}

// Only who has the key has volumes kept by a worker, and those for that worker and organisation.
func TestSealedVolumes(t *testing.T) {
	c, key := New(), []byte("key")
	value := kept(c, key, "w1", "harbour")
	if k, ok := c.SealedVolumes(key, "w1", value); !ok || k.Org != "harbour" || k.Claim().String() != "default/shop/db/1" {
		t.Errorf("want it sealed, and of harbour: %v %+v", ok, k)
	}
	var older spec.VolumeClaim // a worker of before reads as much of it
	if err := c.Unmarshal(value, &older); err != nil || older.String() != "default/shop/db/1" {
		t.Errorf("an older reader has %v, %v", older, err)
	}
	k, _ := c.SealedVolumes(key, "w1", value)
	k.Org = "others"
	for what, held := range map[string][]byte{"another organisation": c.Marshal(&k), "no seal": c.Marshal(&older),
		"another key": kept(c, []byte("other"), "w1", "harbour"), "of another worker": kept(c, key, "w2", "harbour"),
		"an assignment": c.Marshal(&spec.Assignment{ID: "x"}), "nothing": nil} {
		if _, ok := c.SealedVolumes(key, "w1", held); ok {
			t.Errorf("%s: taken for sealed", what)
		}
	}
	if _, ok := c.SealedVolumes(nil, "w1", kept(c, nil, "w1", "harbour")); ok {
		t.Error("without a key everything is sealed")
	}
}

// A snapshot is sealed by who has the key, for one worker, with its record, and its seal is none of volumes. The id alone, which sites of
// earlier versions send, has none.
func TestSealedSnapshot(t *testing.T) {
	c, key, record := New(), []byte("key"), []byte(`{"id":"one"}`)
	plain := spec.KeptSnapshot{Record: record, Given: spec.Given{Life: "one", Serial: 7}}
	sealed := func(key []byte, worker string) spec.KeptSnapshot {
		k := plain
		k.Seal = c.SealSnapshot(key, worker, k)
		return k
	}
	own := sealed(key, "w1")
	if got, ok := c.SealedSnapshot(key, "w1", c.Marshal(&own)); !ok || !reflect.DeepEqual(got, own) {
		t.Errorf("want it sealed, and as it was: %v %+v", ok, got)
	}
	changed, renumbered, revived := own, own, own
	changed.Record, renumbered.Serial, revived.Life = []byte(`{"id":"two"}`), 8, "two"
	for what, held := range map[string]any{"another record": changed, "another number": renumbered, "another life": revived, "no seal": plain,
		"another key": sealed([]byte("other"), "w1"), "of another worker": sealed(key, "w2"), "the id alone": "one", "nothing": nil} {
		if _, ok := c.SealedSnapshot(key, "w1", c.Marshal(held)); ok {
			t.Errorf("%s: taken for sealed", what)
		}
	}
	if _, ok := c.SealedSnapshot(key, "w1", kept(c, key, "w1", "harbour")); ok {
		t.Error("volumes: taken for a sealed snapshot")
	}
	unkeyed := sealed(nil, "w1")
	if _, ok := c.SealedSnapshot(nil, "w1", c.Marshal(&unkeyed)); ok {
		t.Error("without a key everything is sealed")
	}
}

// TestSealsOfEarlierVersions: what sites sealed before there were lives and numbers in it is still sealed.
func TestSealsOfEarlierVersions(t *testing.T) {
	type keptSnapshot struct {
		Record []byte `cbor:"1,keyasint"`
		Seal   []byte `cbor:"2,keyasint,omitempty"`
	}
	c, key := New(), []byte("key")
	old := keptSnapshot{Record: []byte("{}")}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("snapshot/w1/"))
	mac.Write(c.Marshal(&old))
	old.Seal = mac.Sum(nil)
	if got, ok := c.SealedSnapshot(key, "w1", c.Marshal(&old)); !ok || got.Given != (spec.Given{}) {
		t.Errorf("want it sealed, without a life: %v %+v", ok, got)
	}
}

// FuzzSealedVolumes reads what a worker may hold of volumes and snapshots.
func FuzzSealedVolumes(f *testing.F) {
	c, key := New(), []byte("key")
	f.Add(kept(c, key, "w1", "harbour"))
	snapshot := spec.KeptSnapshot{Record: []byte("{}"), Given: spec.Given{Life: "one", Serial: 7}}
	snapshot.Seal = c.SealSnapshot(key, "w1", snapshot)
	f.Add(c.Marshal(&snapshot))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, value []byte) {
		if k, ok := c.SealedVolumes(key, "w1", value); ok {
			if _, again := c.SealedVolumes(key, "w1", c.Marshal(&k)); !again {
				t.Errorf("%+v is sealed, and not when it is written again", k)
			}
		}
		if k, ok := c.SealedSnapshot(key, "w1", value); ok {
			if _, again := c.SealedSnapshot(key, "w1", c.Marshal(&k)); !again {
				t.Errorf("%+v is sealed, and not when it is written again", k)
			}
		}
	})
}
