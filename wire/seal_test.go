package wire

import (
	"testing"

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
	sealed := func(key []byte, worker string) []byte {
		return c.Marshal(&spec.KeptSnapshot{Record: record, Seal: c.SealSnapshot(key, worker, record)})
	}
	if got, ok := c.SealedSnapshot(key, "w1", sealed(key, "w1")); !ok || string(got) != string(record) {
		t.Errorf("want it sealed, and the record: %v %q", ok, got)
	}
	changed := spec.KeptSnapshot{Record: []byte(`{"id":"two"}`), Seal: c.SealSnapshot(key, "w1", record)}
	for what, held := range map[string][]byte{"another record": c.Marshal(&changed), "no seal": c.Marshal(&spec.KeptSnapshot{Record: record}),
		"another key": sealed([]byte("other"), "w1"), "of another worker": sealed(key, "w2"), "volumes": kept(c, key, "w1", "harbour"),
		"the id alone": c.Marshal("one"), "nothing": nil} {
		if _, ok := c.SealedSnapshot(key, "w1", held); ok {
			t.Errorf("%s: taken for sealed", what)
		}
	}
	if _, ok := c.SealedSnapshot(nil, "w1", sealed(nil, "w1")); ok {
		t.Error("without a key everything is sealed")
	}
}

// FuzzSealedVolumes reads what a worker may hold of volumes and snapshots.
func FuzzSealedVolumes(f *testing.F) {
	c, key := New(), []byte("key")
	f.Add(kept(c, key, "w1", "harbour"))
	f.Add(c.Marshal(&spec.KeptSnapshot{Record: []byte("{}"), Seal: c.SealSnapshot(key, "w1", []byte("{}"))}))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, value []byte) {
		if k, ok := c.SealedVolumes(key, "w1", value); ok {
			if _, again := c.SealedVolumes(key, "w1", c.Marshal(&k)); !again {
				t.Errorf("%+v is sealed, and not when it is written again", k)
			}
		}
		if record, ok := c.SealedSnapshot(key, "w1", value); ok {
			again := spec.KeptSnapshot{Record: record, Seal: c.SealSnapshot(key, "w1", record)}
			if _, ok := c.SealedSnapshot(key, "w1", c.Marshal(&again)); !ok {
				t.Errorf("%q is sealed, and not when it is sealed again", record)
			}
		}
	})
}
