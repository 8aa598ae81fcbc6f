package network

import (
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

func TestFar(t *testing.T) {
	app := skerry.AppKey{Namespace: "acme", Name: "shop"}
	key := func(name string) skerry.ServiceKey { return skerry.ServiceKey{App: app, Service: name} }
	f := NewFar()
	f.Set(key("web"), &wire.Far{Service: key("web"),
		Links: []spec.Link{{Service: "db", MaxDistance: 5}, {Service: "log"}}, At: []wire.FarSite{{Site: "b"}}})
	held := f.Of(app)
	f.Set(key("db"), &wire.Far{Service: key("db"), At: []wire.FarSite{{Site: "c"}}})
	f.Set(key("none"), nil)
	if list := f.Of(app); len(list) != 2 || list[0].Service != key("db") || len(held) != 1 || held[0].Service != key("web") {
		t.Errorf("%+v, and before %+v", list, held)
	}
	if !f.LeadsTo(key("db")) || f.LeadsTo(key("log")) || f.LeadsTo(key("web")) {
		t.Error("one limited link leads to db, and none to the others")
	}
	if p := f.Places(app); len(p) != 2 || p[1].Links != nil || len(p[1].At) != 1 || f.Of(app)[1].Links == nil {
		t.Errorf("%+v", p)
	}
	f.Set(key("web"), nil)
	f.Set(key("db"), nil)
	if len(f.by) != 0 {
		t.Errorf("%v is left", f.by)
	}
}
