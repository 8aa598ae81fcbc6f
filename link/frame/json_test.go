package frame_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/decide/reconcile"
	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/wire"
)

// inJSON is samples with what agents that speak JSON have in their sets.
func inJSON() []wire.Message {
	list := samples()
	for _, m := range list {
		switch m := m.(type) {
		case *wire.SetDelta:
			m.Items = []wire.SetItem{{Key: "inst/web-1", Value: []byte(`{"id":"web-1","text":"a \"quoted\" <word>"}`), Gen: 6}, {Key: "inst/web-2", Gen: 7, Deleted: true}}
		case *wire.Report:
			m.Kind, m.Payload = wire.ReportWorker, []byte(`{"seq":1}`)
		case *wire.Events:
			m.Items = [][]byte{[]byte(`{"reason":"OOMKilled"}`), {0xa0}}
		}
	}
	return list
}

// TestGoldenText holds the messages in JSON to what they were: an agent in another language should be tested with these files.
func TestGoldenText(t *testing.T) {
	for _, m := range inJSON() {
		text, err := frame.EncodeJSON(m)
		if err != nil {
			t.Fatal(err)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, text, "", "  "); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		pretty.WriteByte('\n')
		name := filepath.Join("testdata", "golden", "json", m.FrameType().String()+".json")
		want, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) && *update {
			want = pretty.Bytes()
			err = os.WriteFile(name, want, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(want, pretty.Bytes()) {
			t.Errorf("%T is written as\n%s\nwant\n%s", m, pretty.Bytes(), want)
		}
		back, err := frame.DecodeJSON(want)
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Errorf("%T is read as %+v, %v", m, back, err)
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{`{"type":"pong","nonce":3,"later":{"a":[1]}}`, ""},
		{`{"type":"a-later-one"}`, ""},
		{`{"nonce":3}`, ""},
		{`{"type":"pong","nonce":-1}`, "malformed"},
		{`{"type":"pong"`, "malformed"},
		{`{"type":"pong"}{}`, "malformed"},
		{`["pong"]`, "malformed"},
		{"{\"type\":\"\xff\"}", "malformed"},
		{`{"type":"set-ack","digest":"00"}`, "malformed"},
		{`{"type":"report","payload":{"cbor":"!"}}`, "malformed"},
		{``, "malformed"},
		{`{"type":"` + strings.Repeat("x", frame.MaxText) + `"}`, "too large"},
	} {
		_, err := frame.DecodeJSON([]byte(c.text))
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%.60s: %v, want %q", c.text, err, c.err)
		}
	}
	if _, err := frame.EncodeJSON(&wire.Report{Payload: []byte("{" + strings.Repeat("\"", frame.MaxText))}); !errors.Is(err, frame.ErrTooLarge) {
		t.Errorf("a text that is too long: %v", err)
	}
}

// FuzzJSON reads what a device may say: never a panic, and what was read is written and read again as the same.
func FuzzJSON(f *testing.F) {
	for _, m := range inJSON() {
		text, err := frame.EncodeJSON(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(`{"type":"report","payload":{"cbor":"oA=="}}`))
	codec := frame.NewCodec()
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := frame.DecodeJSON(text)
		if err != nil || m == nil {
			return
		}
		again, err := frame.EncodeJSON(m)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		back, err := frame.DecodeJSON(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		a, aerr := codec.Encode(m)
		b, berr := codec.Encode(back)
		if (aerr == nil) != (berr == nil) || !bytes.Equal(a, b) {
			t.Fatalf("%s is read as %+v (%v), then as %+v (%v)", text, m, aerr, back, berr)
		}
	})
}

// TestExternalAgentsDocument holds the page that strangers build agents from to the messages: every member is on it.
func TestExternalAgentsDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/EXTERNAL-AGENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, w := range regexp.MustCompile("[A-Za-z-]+").FindAllString(string(page), -1) {
		words[w] = true
	}
	for _, m := range samples() {
		if name := m.FrameType().String(); !ofStreams(name) && !words[name] {
			t.Errorf("the page does not know the message %s", name)
		}
	}
	list := []any{spec.Assignment{}, wire.Observation{}, wire.Exit{}, wire.PortBinding{}, skerry.Fence{}, wire.Endpoints{}, wire.Endpoint{}, wire.WorkerReport{},
		wire.WorkerFacts{}, spec.Resources{}, wire.RuntimeReport{}, wire.QoS{}, wire.Power{}, spec.Location{}, wire.SetItem{}, wire.HeldItem{}}
	for _, m := range samples() {
		if !ofStreams(m.FrameType().String()) {
			list = append(list, m)
		}
	}
	for _, v := range list {
		typ := reflect.Indirect(reflect.ValueOf(v)).Type()
		for i := range typ.NumField() {
			name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if name != "-" && !words[name] {
				t.Errorf("the page does not know %s of %s", name, typ)
			}
		}
	}
	// The digests that it gives as test vectors.
	for _, items := range []map[string][]byte{{"a": []byte("{}")}, {"a": []byte("{}"), "inst/web-1": []byte(`{"id":"web-1"}`)}} {
		if d := reconcile.DigestOf(items); !strings.Contains(string(page), "`"+hex.EncodeToString(d[:])+"`") {
			t.Errorf("the page does not give the digest of %q: %x", items, d)
		}
	}
}

// ofStreams tells the messages that do not travel over MQTT.
func ofStreams(name string) bool {
	switch name {
	case "open-streams", "lease", "promise", "vote", "ask", "follow", "followed":
		return true
	}
	return strings.HasPrefix(name, "stream-")
}
