package containerd

import (
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// answers are what a daemon sends, put together by hand from its definitions.
func answers() map[string]message {
	stamp := message{}.number(1, 1_700_000_000).number(2, 5)
	return map[string]message{
		"containers": message{}.in(1, message{}.text(1, "a").in(2, message{}.text(1, labelTask).text(2, "a.main.1")).text(3, "image").in(5, anything(specURL, []byte("{}")))).in(1, message{}.text(1, "b")),
		"process":    message{}.in(1, message{}.text(1, "a").text(2, "a").number(3, 77).number(4, uint64(StatusStopped)).text(5, "in").number(9, 137).in(10, stamp)),
		"wait":       message{}.number(1, 137).in(2, stamp),
		"mounts": message{}.in(1, message{}.text(1, "overlay").text(2, "overlay").text(4, "index=off").text(4, "lowerdir=/a:/b")).in(1,
			message{}.text(1, "bind").text(2, "/c")),
		"none": nil,
	}
}

func TestAnswers(t *testing.T) {
	a, at := answers(), time.Unix(1_700_000_000, 5)
	list, err := parseContainers(a["containers"])
	if want := []Container{{"a", map[string]string{labelTask: "a.main.1"}}, {"b", map[string]string{}}}; err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("%+v, %v", list, err)
	}
	if p, err := parseProcess(a["process"]); err != nil || p.PID != 77 || p.Status != StatusStopped || p.Code != 137 || !p.At.Equal(at) {
		t.Errorf("%+v, %v", p, err)
	}
	if code, when, err := parseWait(a["wait"]); err != nil || code != 137 || !when.Equal(at) {
		t.Errorf("%d, %v, %v", code, when, err)
	}
	mounts, err := parseMounts(a["mounts"])
	if want := []Mount{{"overlay", "overlay", []string{"index=off", "lowerdir=/a:/b"}}, {"bind", "/c", nil}}; err != nil ||
		!reflect.DeepEqual(mounts, want) {
		t.Errorf("%+v, %v", mounts, err)
	}
	if _, err := parseProcess([]byte{0x0a, 0xff}); !errors.Is(err, errMessage) {
		t.Errorf("a message that was cut off: %v", err)
	}
}

// FuzzAnswer reads what may come from a socket, which need not be containerd's.
func FuzzAnswer(f *testing.F) {
	for _, m := range answers() {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := parseContainers(b); err == nil {
			for _, c := range list {
				if c.Labels == nil {
					t.Error("no labels")
				}
			}
		}
		if list, err := parseMounts(b); err == nil && len(list) > len(b) {
			t.Errorf("%d mounts of %d bytes", len(list), len(b))
		}
		if p, err := parseProcess(b); err == nil && p.PID < 0 {
			t.Errorf("process %d", p.PID)
		}
		code, at, err := parseWait(b)
		if err == nil && (code < 0 || at.Nanosecond() >= 1e9) {
			t.Errorf("%d, %v", code, at)
		}
		_, _ = parseNumber(b, 2)
		_, _ = parseText(b, 1)
		if body, err := unframe(b); err == nil && len(body) != len(b)-5 {
			t.Errorf("%d bytes of %d", len(body), len(b))
		}
	})
}

// newServer has a daemon listen at a socket until the test ends.
func newServer(t *testing.T, socket string, answer http.HandlerFunc) *http.Server {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: answer, Protocols: &p}
	go func() { _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Close() })
	return srv
}

// Whoever else may listen at the socket is told apart from containerd, and what it refuses is told in its words.
func TestCalls(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "sock")
	answer := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("containerd-namespace") != Namespace || r.Header.Get("Content-Type") != "application/grpc" {
			t.Errorf("headers: %v", r.Header)
		}
		switch r.URL.Path {
		case "/containerd.services.version.v1.Version/Version":
			w.Header().Set("Trailer", "grpc-status")
			_, _ = w.Write(append([]byte{0, 0, 0, 0, 5}, message{}.text(1, "1.6")...))
			w.Header().Set("grpc-status", "0")
		case "/containerd.services.tasks.v1.Tasks/Get":
			w.Header().Set("grpc-status", "5")
			w.Header().Set("grpc-message", "no task \"a\" 100%25")
		case "/containerd.services.tasks.v1.Tasks/Start":
			http.Error(w, "what?", http.StatusTeapot)
		}
	}
	newServer(t, socket, answer)
	c := NewClient(socket)
	defer c.Close()
	if v, err := c.Version(t.Context()); err != nil || v != "1.6" {
		t.Errorf("%q, %v", v, err)
	}
	if _, err := c.Get(t.Context(), "a"); !NotFound(err) || err.Error() != `containerd: Get: no task "a" 100%` {
		t.Errorf("%v", err)
	}
	if err := c.Start(t.Context(), "a", ""); !errors.Is(err, errMessage) {
		t.Errorf("%v", err)
	}
	if _, _, err := c.Wait(t.Context(), "a", ""); !errors.Is(err, errMessage) {
		t.Errorf("an answer without a status: %v", err)
	}
}
