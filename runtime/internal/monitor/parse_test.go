//go:build linux

package monitor

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseLine(t *testing.T) {
	const stamp = "2026-11-21T10:07:35.493367882+00:00"
	for in, want := range map[string]string{
		stamp + " stdout F hello world\n": "stdout|hello world|false",
		stamp + " stderr P half\n":        "stderr|half|true",
		stamp + " stdout F \n":            "stdout||false",
		stamp + " stdout F":               "stdout||false",
		stamp + " stdout F  two \r\n":     "stdout| two \r|false",
	} {
		e, partial, ok := parseLine([]byte(in))
		got := e.Stream + "|" + e.Line + "|" + map[bool]string{true: "true", false: "false"}[partial]
		if !ok || got != want || !e.Time.Equal(time.Date(2026, 11, 21, 10, 7, 35, 493367882, time.UTC)) {
			t.Errorf("%q is %q at %s", in, got, e.Time)
		}
	}
	for _, in := range []string{"", "\n", "x", stamp, stamp + " stdin F x", stamp + " stdout Q x", "yesterday stdout F x"} {
		if e, _, ok := parseLine([]byte(in)); ok {
			t.Errorf("%q is %+v", in, e)
		}
	}
}

func FuzzParseLine(f *testing.F) {
	f.Add([]byte("2026-11-21T10:07:35.493367882+00:00 stdout F hello\n"))
	f.Add([]byte(" stdout P"))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, _, ok := parseLine(b)
		if ok && (len(e.Line) >= len(b) || e.Stream != "stdout" && e.Stream != "stderr") {
			t.Errorf("%q is %+v", b, e)
		}
	})
}

func TestParseSync(t *testing.T) {
	if pid, err := parseSync([]byte(`{"data": 5587}` + "\n")); pid != 5587 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
	_, err := parseSync([]byte(`{"data": -1, "message": "no such file\n"}`))
	if ce, ok := errors.AsType[*CreateError](err); !ok || ce.Message != "no such file" {
		t.Errorf("%v", err)
	}
	for _, in := range []string{`{"data": 0}`, `{}`, `nonsense`, ``} {
		if pid, err := parseSync([]byte(in)); err == nil {
			t.Errorf("%q is process %d", in, pid)
		}
	}
}

func FuzzParseSync(f *testing.F) {
	f.Add([]byte(`{"data": 5587}`))
	f.Add([]byte(`{"data": -1, "message": "x"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if pid, err := parseSync(b); (pid > 0) != (err == nil) {
			t.Errorf("%d, %v", pid, err)
		}
	})
}

func TestIdentify(t *testing.T) {
	me := Identify(os.Getpid())
	if !me.Alive() || me.Ticks == 0 {
		t.Errorf("%+v", me)
	}
	if (Process{me.PID, me.Ticks + 1}).Alive() {
		t.Error("another process of the same number counts as this one")
	}
	if err := (Process{me.PID, me.Ticks + 1}).Signal(unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := (Process{me.PID, me.Ticks + 1}).WaitGone(t.Context()); err != nil {
		t.Error(err)
	}
	if ticks, state := parseStat("1 (a b) c) S 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 42 19"); ticks != 42 || state != 'S' {
		t.Errorf("%d %c", ticks, state)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("1 (sh) S 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 42 19")
	f.Add(") ")
	f.Fuzz(func(t *testing.T, s string) { parseStat(s) })
}

func FuzzParseEvents(f *testing.F) {
	ev := binary.NativeEndian.AppendUint32(nil, 1)
	ev = binary.NativeEndian.AppendUint64(ev, 128)
	ev = binary.NativeEndian.AppendUint32(ev, 16)
	ev = append(ev, "log\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	if evs := parseEvents(ev); len(evs) != 1 || evs[0] != (event{1, 128, "log"}) {
		f.Errorf("%+v", evs)
	}
	f.Add(ev)
	f.Add(ev[:17])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, e := range parseEvents(b) {
			if strings.ContainsRune(e.name, 0) {
				t.Errorf("%q", e.name)
			}
		}
	})
}
