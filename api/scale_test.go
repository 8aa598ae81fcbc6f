package api_test

import (
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
)

// TestMoreInstancesThanAddresses: what would need a larger record of addresses than the store takes is refused in words, and the role
// neither panics nor changes anything because of it.
func TestMoreInstancesThanAddresses(t *testing.T) {
	s := newRoot(t)
	admin, key := s.admin(), skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	_, err := admin.Apply(t.Context(), []byte(shop), api.ApplyOptions{})
	must(t, err)
	for range 2 { // nor is who asks held off afterwards
		_, err = admin.Scale(t.Context(), key, 9000)
		if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeTooLarge || !strings.Contains(e.Message, "9000 instances") {
			t.Errorf("scale to 9000: got %v, want a refusal that names what it would have", err)
		}
	}
	_, err = admin.Apply(t.Context(), []byte(strings.Replace(shop, "native", "native\n    replicas: 9000", 1)), api.ApplyOptions{})
	if e := skerry.AsError(err); e == nil || e.Code != skerry.CodeTooLarge {
		t.Errorf("apply with 9000: got %v, want it refused", err)
	}
	if _, err := admin.Scale(t.Context(), key, 3000); err != nil {
		t.Errorf("scale to 3000: got %v, want no error", err)
	}
	app, err := admin.App(t.Context(), key.App)
	if err != nil || app.Gen != 2 || app.Services[0].Want != 3000 {
		t.Errorf("afterwards: got generation %d with %d wanted, %v; want 2 with 3000", app.Gen, app.Services[0].Want, err)
	}
}

// TestAddressesThatRest: what was given back never makes the record of addresses too large, neither when thousands of instances end nor
// when services with long names follow one another.
func TestAddressesThatRest(t *testing.T) {
	s := newRoot(t)
	admin, key := s.admin(), skerry.ServiceKey{App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "web"}
	_, err := admin.Apply(t.Context(), []byte(shop), api.ApplyOptions{})
	must(t, err)
	for _, n := range []int{7000, 1} {
		if _, err := admin.Scale(t.Context(), key, n); err != nil {
			t.Fatalf("scale to %d: got %v, want no error", n, err)
		}
	}
	for n := range 4 {
		name := strings.Repeat(string(rune('a'+n)), 63)
		manifest := strings.Replace(strings.Replace(shop, "name: web", "name: "+name, 1), "native", "native\n    replicas: 1900", 1)
		if _, err := admin.Apply(t.Context(), []byte(manifest), api.ApplyOptions{}); err != nil {
			t.Fatalf("apply with another service, %d: got %v, want no error", n, err)
		}
	}
	app, err := admin.App(t.Context(), key.App)
	if err != nil || app.Services[0].Want != 1900 || !app.Services[0].Addresses.RoundRobin.IsValid() {
		t.Errorf("afterwards: got %+v, %v; want 1900 with an address", app.Services, err)
	}
}
