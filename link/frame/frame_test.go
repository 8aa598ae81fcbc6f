package frame_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"skerry.dev/skerry/link/frame"
	"skerry.dev/skerry/wire"
)

var update = flag.Bool("update", false, "write golden frames that do not exist yet; those of a release are never changed")

// samples has every message with every field set, so that a golden frame pins every key.
func samples() []wire.Message {
	d := wire.Digest{1, 2, 3, 15: 16}
	items := []wire.SetItem{{Key: "a", Value: []byte("one"), Gen: 6}, {Key: "b", Gen: 7, Deleted: true}}
	ack := wire.SetAck{Set: "desired", Incarnation: "i1", Gen: 7, Digest: d, PartIncarnation: "i2", PartGen: 9, PartDigest: d, PartNext: 3,
		Orphans: 2, OrphanDigest: d}
	candidates := []wire.LeaseCandidate{{Name: "b", Addr: "b:7444"}, {Name: "c", Addr: "c:7444"}}
	return []wire.Message{
		&wire.Hello{Tier: wire.TierWorker, Name: "w1", Version: "0.1.0", ProtocolMin: 1, ProtocolMax: 2, Features: []string{"streams"},
			Required: []string{"sets"}, Sets: []wire.SetAck{ack}, Boot: "b1", Machine: "m1", Time: 1234567890123, Term: 3},
		&wire.Welcome{Protocol: 1, Features: []string{"streams"}, Tier: wire.TierCluster, Name: "harbour", Version: "0.1.0", Incarnation: "i1",
			Sets: []wire.SetAck{ack}, Events: wire.EventsAck{Stream: "s", Seq: 5}, KeepAlive: 15000, Time: 1234567890123,
			Pace: &wire.Pace{Report: 5000, ReportIdle: 30000, Probe: 8000}, Beat: 1000, Term: 3},
		&wire.Refuse{Code: wire.RefuseClone, Reason: "why", Hint: "what to do", RetryAfter: 1000},
		&wire.Ping{Nonce: 7, RTT: 1500},
		&wire.Pong{Nonce: 7},
		&wire.SetDelta{Set: "desired", Incarnation: "i1", Base: 5, Gen: 7, Digest: d, Items: items},
		&wire.SetChunk{Set: "desired", Incarnation: "i1", Base: 5, Gen: 7, Digest: d, Items: items, Index: 1, Last: true, Delta: true},
		&ack,
		&wire.SetWant{Set: "desired", Incarnation: "i1", Gen: 7, Reason: wire.WantGap, Of: "i2"},
		&wire.SetHeldWant{Set: "desired", Next: 2, Digest: d},
		&wire.SetHeld{Set: "desired", Digest: d, Items: []wire.HeldItem{{Key: "k", Value: []byte("v"), Gen: 3, Incarnation: "i0"}}, Index: 1, Last: true},
		&wire.Events{Stream: "s", First: 4, Floor: 3, Items: [][]byte{[]byte("e4"), []byte("e5")}},
		&wire.EventsAck{Stream: "s", Seq: 5},
		&wire.Report{Kind: "beat", Payload: []byte{1, 2, 3}},
		&wire.OpenStreams{Reason: "logs"},
		&wire.StreamHello{Tier: wire.TierWorker, Name: "w1", Boot: "b1"},
		&wire.StreamHeader{Kind: "http", Meta: map[string]string{"a": "b"}},
		&wire.StreamOpened{},
		&wire.Join{Token: "skt1", Tier: wire.TierWorker, Name: "w1", CSR: []byte{1}, Machine: "m1", Boot: "b1", Version: "0.1.0", SiteCA: []byte{2}},
		&wire.Renew{Counter: 3, Attempt: "a1", Machine: "m1", Boot: "b1", SiteCA: []byte{2}},
		&wire.Joined{Tier: wire.TierWorker, Name: "w1", Site: "harbour", Certificate: []byte{1}, CA: []byte{2}, Counter: 3, Life: 86400, SiteCert: []byte{4}},
		&wire.Lease{Term: 3, Holder: "a", Seq: 2, InSync: candidates, TTL: 12000, Stamp: 99, At: "a:7444"},
		&wire.Promise{Term: 3, Holder: "a", Seq: 2, Stamp: 99},
		&wire.Vote{Term: 4, Holder: "b", LeaseTerm: 3, LeaseHolder: "a", Seq: 2, InSync: candidates, Strayed: true, Wait: 700, At: "a:7444"},
		&wire.Ask{Term: 4, Candidate: "b"},
		&wire.Follow{LeaseTerm: 3, Revision: 77, Addr: "b:7444", Machine: "m1", Version: "0.1.0", Keyed: true},
		&wire.Followed{Term: 4, Holder: "b", Whole: true, Orphan: true, Common: 70, TTL: 12000},
	}
}

func goldenName(m wire.Message) string {
	return filepath.Join("testdata", "golden", "v1", strings.ToLower(reflect.TypeOf(m).Elem().Name())+".hex")
}

// TestGoldenFrames holds protocol 1 to what its first release put on the wire: we write the same bytes and read them back.
func TestGoldenFrames(t *testing.T) {
	c := frame.NewCodec()
	for _, m := range samples() {
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() && v.Type().Field(i).Tag.Get("cbor") != "-" {
				t.Errorf("%T: sample has no %s", m, v.Type().Field(i).Name)
			}
		}
		got, err := c.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(goldenName(m))
		if errors.Is(err, os.ErrNotExist) && *update {
			text = []byte(dump(got))
			err = os.WriteFile(goldenName(m), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		want := undump(t, string(text))
		if !bytes.Equal(got, want) {
			t.Errorf("%T is written as\n%swant\n%s", m, dump(got), text)
		}
		back, n, err := frame.NewReader(bytes.NewReader(want), c, frame.MaxFrame).Next()
		if err != nil || n != len(want) || !reflect.DeepEqual(back, m) {
			t.Errorf("%T is read as %+v, %v", m, back, err)
		}
	}
}

// dump writes 16 bytes a line with their text beside them.
func dump(b []byte) string { return hex.Dump(b) }

func undump(t *testing.T, s string) []byte {
	t.Helper()
	var out []byte
	for line := range strings.Lines(s) {
		if len(line) < 60 {
			continue
		}
		b, err := hex.DecodeString(strings.ReplaceAll(line[10:58], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b...)
	}
	return out
}

// TestEveryTypeHasASample fails when a message is added without a golden frame.
func TestEveryTypeHasASample(t *testing.T) {
	seen := map[wire.FrameType]bool{}
	for _, m := range samples() {
		seen[m.FrameType()] = true
	}
	for i := range 256 {
		if m := wire.NewMessage(wire.FrameType(i)); m != nil {
			if m.FrameType() != wire.FrameType(i) || !seen[m.FrameType()] {
				t.Errorf("type %d (%T) has no sample, or another number", i, m)
			}
		}
	}
}

// TestProtocolIsDocumented fails when docs/PROTOCOL.md does not name a message or a refusal that peers may see.
func TestProtocolIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range samples() {
		if name := reflect.TypeOf(m).Elem().Name(); !strings.Contains(string(b), name) {
			t.Errorf("docs/PROTOCOL.md does not mention %s", name)
		}
	}
	for _, c := range []wire.RefuseCode{wire.RefuseProtocol, wire.RefuseFeature, wire.RefuseIdentity, wire.RefuseExpired, wire.RefuseRevoked,
		wire.RefuseUnknown, wire.RefuseClone, wire.RefuseTokenUsed, wire.RefuseTokenExpired, wire.RefuseTokenUnknown, wire.RefuseTokenRole,
		wire.RefuseTokenName, wire.RefuseNameTaken, wire.RefuseMalformed, wire.RefuseBusy, wire.RefuseStreamKind, wire.RefuseNotAuthorised,
		wire.RefuseInternal} {
		if !strings.Contains(string(b), "`"+string(c)+"`") {
			t.Errorf("docs/PROTOCOL.md does not explain the refusal %s", c)
		}
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	c := frame.NewCodec()
	m, err := c.Decode(wire.FramePing, []byte{0xa2, 0x01, 0x07, 0x18, 0x63, 0x82, 0x01, 0x61, 'x'})
	if err != nil || m.(*wire.Ping).Nonce != 7 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := c.Decode(250, []byte("anything")); m != nil || err != nil {
		t.Errorf("unknown type: %v, %v", m, err)
	}
}

func TestLimits(t *testing.T) {
	c := frame.NewCodec()
	if _, err := c.Encode(&wire.Report{Payload: make([]byte, frame.MaxFrame)}); !errors.Is(err, frame.ErrTooLarge) {
		t.Errorf("a frame too large is written: %v", err)
	}
	many := []byte{0xa1, 0x04, 0x9a, 0, 1, 0, 1} // 65,537 empty events
	many = append(many, bytes.Repeat([]byte{0x40}, 65537)...)
	for name, p := range map[string][]byte{
		"too many elements":  many,
		"indefinite length":  {0xbf, 0x01, 0x07, 0xff},
		"a tag":              {0xa1, 0x01, 0xc1, 0x07},
		"duplicate key":      {0xa2, 0x01, 0x07, 0x01, 0x08},
		"invalid UTF-8":      {0xa1, 0x01, 0x61, 0xff},
		"empty":              {},
		"negative as counts": {0xa1, 0x02, 0x20},
	} {
		if m, err := c.Decode(wire.FrameEvents, p); !errors.Is(err, frame.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	// Nothing is allocated on the word of a header alone.
	r := frame.NewReader(bytes.NewReader([]byte{16, 0x0f, 0xff, 0xff, 1, 2}), c, frame.MaxFrame)
	if _, _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: %v", err)
	}
}

func TestReaderStopsAtTheFrame(t *testing.T) {
	c := frame.NewCodec()
	var b bytes.Buffer
	for i := range 3 {
		if err := frame.Write(&b, c, &wire.Report{Kind: fmt.Sprint(i), Payload: make([]byte, i*40_000)}); err != nil {
			t.Fatal(err)
		}
	}
	b.WriteString("rest")
	in := iotest.OneByteReader(&b)
	r := frame.NewReader(in, c, frame.MaxFrame)
	for i := range 3 {
		m, _, err := r.Next()
		if err != nil || m.(*wire.Report).Kind != fmt.Sprint(i) || len(m.(*wire.Report).Payload) != i*40_000 {
			t.Fatalf("%v, %v", m, err)
		}
	}
	if rest, _ := io.ReadAll(in); string(rest) != "rest" {
		t.Errorf("left: %q", rest)
	}
}

// FuzzReader reads a whole stream of frames: no panic, and what was read is written back and read as the same.
func FuzzReader(f *testing.F) {
	c := frame.NewCodec()
	for _, m := range samples() {
		b, _ := c.Encode(m)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := frame.NewReader(bytes.NewReader(b), c, frame.MaxGreeting)
		for {
			m, _, err := r.Next()
			if err != nil {
				return
			}
			if m == nil {
				continue
			}
			again, err := c.Encode(m)
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			back, _, err := frame.NewReader(bytes.NewReader(again), c, frame.MaxFrame).Next()
			if err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
			if twice, _ := c.Encode(back); !bytes.Equal(again, twice) {
				t.Fatalf("%x is written as %x", again, twice)
			}
		}
	})
}
