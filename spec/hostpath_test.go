package spec

import (
	"encoding/json"
	"testing"
)

func TestHostPath(t *testing.T) {
	for in, want := range map[string]string{
		`"/srv/media"`:                       `"/srv/media"`,
		`{"path":"/srv/up"}`:                 `"/srv/up"`,
		`{"path":"/srv/up","writable":true}`: `{"path":"/srv/up","writable":true}`,
		`"srv"`:                              "",
		`{"path":"/srv","write":true}`:       "",
		`{}`:                                 "",
		`7`:                                  "",
	} {
		var h HostPath
		err := h.UnmarshalStrict([]byte(in))
		if (err == nil) != (want != "") {
			t.Errorf("%s: %v", in, err)
		}
		if out, _ := json.Marshal(h); want != "" && string(out) != want {
			t.Errorf("%s became %s", in, out)
		}
	}
	list := []HostPath{{Path: "/srv/up/"}, {Path: "/srv/up", Writable: true}, {Path: "/"}, {Path: "/srvx"}}
	got := HostPathsFor(list, "/srv/up/./x")
	if len(got) != 3 || got[0].Path != "/" || got[2] != (HostPath{"/srv/up", true}) {
		t.Errorf("%v", got)
	}
	if got := HostPathsFor(list, "/srv/up/../x"); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func FuzzHostPath(f *testing.F) {
	f.Add([]byte(`"/srv"`))
	f.Add([]byte(`{"path":"/srv","writable":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h, again HostPath
		if h.UnmarshalStrict(data) != nil {
			return
		}
		out, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out, &again); err != nil || again != h {
			t.Fatalf("%s became %s: %v", data, out, err)
		}
	})
}
