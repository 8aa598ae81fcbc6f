package spec

import (
	"strings"
	"testing"
)

// FuzzVolumeKey: a key that is taken names one claim and nothing beside its replica's directory, whoever sends it.
func FuzzVolumeKey(f *testing.F) {
	for _, key := range []string{"vol/default/shop/db/0", "vol/default/shop/db/12:data", "vol/default/shop/db/0:",
		"vol/default/shop/db/0:../../etc", "vol/default/shop/db/-1",
		"vol/default/shop/db/01", "vol/default/shop/db/0:a:b", "vol/default/shop/db", "snap/x"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		v, ok := ParseVolumeKey(key)
		if !ok {
			return
		}
		if v.Key() != key || v.Ordinal < 0 || strings.ContainsAny(v.Volume, "/.:") || strings.HasSuffix(key, ":") {
			t.Errorf("%q is %+v", key, v)
		}
		if w := v.Whole(); w.Volume != "" || w.Compare(v) > 0 || (w == v) != (v.Volume == "") {
			t.Errorf("all of %+v is %+v", v, w)
		}
	})
}

func TestVolumeKeys(t *testing.T) {
	for key, volume := range map[string]string{"vol/default/shop/db/0": "", "vol/default/shop/db/12:data": "data"} {
		if v, ok := ParseVolumeKey(key); !ok || v.Volume != volume {
			t.Errorf("%s: %+v, %v", key, v, ok)
		}
	}
	for _, key := range []string{"vol/default/shop/db/0:", "vol/default/shop/db/0:../../etc", "vol/default/shop/db/0:a:b",
		"vol/default/shop/db/01", "vol/default/shop/db"} {
		if v, ok := ParseVolumeKey(key); ok {
			t.Errorf("%s is taken as %+v", key, v)
		}
	}
	if v, err := ParseVolumeName("default", "shop/db/0:data"); err == nil {
		t.Errorf("one volume is taken for all of a replica: %+v", v)
	}
}
