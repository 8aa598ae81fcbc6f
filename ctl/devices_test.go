package ctl

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"skerry.dev/skerry/api"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// A device is shown with who has it; one that is gone is, too, for as long as somebody has it.
func TestListDevices(t *testing.T) {
	items := map[string]any{
		"/v1/workers": []view.WorkerView{{Name: "w1", Facts: &wire.WorkerFacts{Attachable: []string{"/dev/serial/by-id/a", "plc=p4", "serial=b"},
			DeviceDetails: []wire.Device{{Name: "plc=p4", Shares: 2, At: "/dev/ttyS1", Labels: map[string]string{"hall": "4"}}}}}, {Name: "w2"}},
		"/v1/instances": []wire.Instance{{ID: "a", Worker: "w1", Devices: []string{"plc=p4", "camera=gone"}},
			{ID: "b", Worker: "w1", Devices: []string{"plc=p4"}},
			{ID: "c", Worker: "w2"}},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{"items": items[r.URL.Path]}); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	client, err := api.NewClient(api.ClientOptions{Server: srv.URL, Bearer: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	list, err := listDevices(t.Context(), client, listQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range list {
		got = append(got, strings.Join(append(i.cells, i.wide...), "|"))
	}
	want := []string{"/dev/serial/by-id/a||w1|0|1|||", "camera=gone|camera|w1|1|1|gone||a", "plc=p4|plc|w1|2|2|/dev/ttyS1|hall=4|a,b",
		"serial=b|serial|w1|0|1|||"}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}
