package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"reflect"
	"testing"
)

func messages() []Message {
	return []Message{
		&Config{
			Seed: "seed", Time: 1 << 62, Hostname: "islet", Process: Process{Args: []string{"a", ""}, Env: []string{"A=1"}, Dir: "/", UID: 1, GID: 2, Groups: []uint32{3}, TTY: true, Size: Size{24, 80}},
			Ambient: []uint32{4}, Drop: []uint32{5, 6}, NewPrivs: true, Rlimits: []Rlimit{{7, 8, 1 << 63}}, Sysctls: []string{"a", "b"}, Scratch: true, Memory: 1 << 40, Pids: 9,
			Mounts: []Mount{{Share: "0", Target: "/t", Data: "d", ReadOnly: true}, {File: true}}, Net: &Net{Index: 2, Requests: []string{"xxxx"}},
			Copied: true,
		},
		&Config{},
		&Process{Args: []string{"program"}},
		&Failure{"args[0]", "no such file"},
		&Exit{137, true, Usage{1, 2, 3, 4, 5}},
		&Usage{1 << 60, 2, 3, 4, 5},
		&Size{1, 2},
		&File{Path: "0/name", Mode: 0o100644, UID: 1, GID: 2, Offset: 1 << 33, Last: true, Data: "text"},
	}
}

func TestMessagesComeBack(t *testing.T) {
	for _, m := range messages() {
		data := Encode(m)
		back := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
		if err := Decode(data, back); err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("%+v came back as %+v, %v", m, back, err)
		}
		if err := Decode(append(data, 0), back); !errors.Is(err, ErrFrame) {
			t.Errorf("with a byte too many: %v", err)
		}
		if err := Decode(data[:len(data)-1], back); !errors.Is(err, ErrFrame) {
			t.Errorf("with a byte too few: %v", err)
		}
	}
}

// TestVersion: who changes a message raises the version, so that an init and a vm-run of two builds refuse each other.
func TestVersion(t *testing.T) {
	sum := sha256.New()
	for _, m := range messages() {
		sum.Write(Encode(m))
	}
	const version, digest = 2, "1e09fb151d1541c5"
	if got := hex.EncodeToString(sum.Sum(nil))[:16]; Version != version || got != digest {
		t.Errorf("messages of version %d have the digest %s; those of %d had %s", Version, got, version, digest)
	}
}

func TestFrames(t *testing.T) {
	var b bytes.Buffer
	want := []Frame{{KindHello, 0, []byte{Version}}, {KindStdout, 1<<32 - 1, []byte{}}, {KindConfig, 7, bytes.Repeat([]byte{1}, MaxData)}}
	for _, f := range want {
		if err := Write(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(io.Discard, Frame{Data: make([]byte, MaxData+1)}); !errors.Is(err, ErrFrame) {
		t.Errorf("a frame that is too large: %v", err)
	}
	all := b.Bytes()
	r := bytes.NewReader(all)
	for _, f := range want {
		if got, err := Read(r); err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%v came back as %v, %v", f, got, err)
		}
	}
	if _, err := Read(r); err != io.EOF {
		t.Errorf("the end is %v", err)
	}
	for _, cut := range []int{1, 9} {
		if _, err := Read(bytes.NewReader(all[:cut])); err != io.ErrUnexpectedEOF {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
	if _, err := Read(bytes.NewReader([]byte{1, 0, 0, 0, 0, 0xff, 0, 0, 0})); !errors.Is(err, ErrFrame) {
		t.Errorf("a length that is too large: %v", err)
	}
}

// FuzzDecode reads messages of every kind from either side: whatever is accepted is written the same way again.
func FuzzDecode(f *testing.F) {
	for i, m := range messages() {
		f.Add(byte(i), Encode(m))
	}
	f.Fuzz(func(t *testing.T, kind byte, data []byte) {
		all := messages()
		m := reflect.New(reflect.TypeOf(all[int(kind)%len(all)]).Elem()).Interface().(Message)
		if Decode(data, m) != nil {
			return
		}
		again := reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message)
		if err := Decode(Encode(m), again); err != nil || !reflect.DeepEqual(m, again) {
			t.Errorf("%+v is %+v the second time, %v", m, again, err)
		}
	})
}
