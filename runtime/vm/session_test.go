//go:build linux

package vm

import (
	"bytes"
	"io"
	"testing"

	"skerry.dev/skerry/runtime/vm/wire"
)

// script is a connection on which a guest has said something, and hears nothing.
type script struct{ io.Reader }

func (script) Write(b []byte) (int, error) { return len(b), nil }
func (script) Close() error                { return nil }

func say(frames ...wire.Frame) []byte {
	var b bytes.Buffer
	for _, f := range frames {
		_ = wire.Write(&b, f)
	}
	return b.Bytes()
}

func frame(kind wire.Kind, stream uint32, data ...byte) wire.Frame {
	return wire.Frame{Kind: kind, Stream: stream, Data: data}
}

// FuzzGuest lets a guest say anything: vm-run tells at most one end, and only of what it began.
func FuzzGuest(f *testing.F) {
	hello, started := frame(wire.KindHello, 0, wire.Version), frame(wire.KindStarted, 0)
	exit := wire.Encode(&wire.Exit{Code: 3, OOM: true})
	f.Add(say(hello, started, frame(wire.KindStdout, 0, 'a'), frame(wire.KindStderr, 0, 'b'), frame(wire.KindExit, 0, exit...)))
	f.Add(say(hello, frame(wire.KindFailed, 0, wire.Encode(&wire.Failure{Field: "args[0]", Message: "\x1b[2J"})...)))
	f.Add(say(frame(wire.KindExit, 0, exit...), started, hello))
	f.Add(say(frame(wire.KindHello, 0, wire.Version+1)))
	f.Add(say(hello, frame(wire.KindStdout, 7, 'x'), frame(wire.KindExit, 7, exit...), started))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newSession(script{bytes.NewReader(data)})
		var out bytes.Buffer
		s.stdout, s.stderr = &out, &out
		s.listen()
		if len(s.running) > 0 && len(s.booted) == 0 || len(s.exited) > 0 && len(s.running) == 0 {
			t.Errorf("booted %d, running %d, exited %d", len(s.booted), len(s.running), len(s.exited))
		}
		if out.Len() > 0 && len(s.running) == 0 {
			t.Errorf("%q before anything ran", out.Bytes())
		}
		if len(s.failed) > 0 {
			if m := <-s.failed; bytes.ContainsAny([]byte(m.Message+m.Field), "\x1b\x00\r") {
				t.Errorf("%q would go to a terminal", m)
			}
		}
	})
}

// TestNoClockIsToldToWhoAsksLater: a guest may say it before anybody looks, in two pieces, and more than once.
func TestNoClockIsToldToWhoAsksLater(t *testing.T) {
	console, guest := io.Pipe()
	c := follow(console)
	for _, s := range []string{"APIC frequency too slow, " + noClock[:5], noClock[5:] + "\n", noClock + "\n"} {
		if _, err := io.WriteString(guest, s); err != nil {
			t.Fatal(err)
		}
	}
	guest.Close()
	<-c.noClock                             // for ever, if it is not told
	_, _ = new(tail).Write([]byte(noClock)) // of what has a clock of its own
}
