//go:build linux

package wasm

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/wasmcode"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/runtime/runtimetest"
)

// rig starts modules for tests of one driver.
type rig struct {
	*Driver
	t    *testing.T
	root string
	n    int
}

func newRig(t *testing.T, modules map[string][]byte) *rig {
	t.Helper()
	dr, err := openDriver(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dr.Close() })
	r := &rig{Driver: dr.(*Driver), t: t, root: t.TempDir()}
	for name, code := range modules {
		if err := os.WriteFile(filepath.Join(r.root, name), code, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(r.root, 0o755); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) spec(args ...string) runtime.Spec {
	r.n++
	return runtime.Spec{ID: runtime.TaskID(fmt.Sprintf("rig-%d-%d.main.1", os.Getpid(), r.n)), RootFS: []runtime.Mount{{Type: "bind", Source: r.root}}, Args: args}
}

func (r *rig) start(sp runtime.Spec) runtime.Handle {
	r.t.Helper()
	h, err := r.Start(r.t.Context(), sp)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := r.Remove(context.Background(), h); err != nil {
			r.t.Error(err)
		}
	})
	return h
}

// log gives what a task printed, up to its end.
func (r *rig) log(h runtime.Handle) string {
	r.t.Helper()
	log, err := r.OpenLog(r.t.Context(), h, runtime.LogOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	var b strings.Builder
	for {
		e, err := log.Next()
		if err != nil {
			return b.String()
		}
		b.WriteString(e.Line + "\n")
	}
}

// port is one that nobody listens at.
func port(t testing.TB) uint16 {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return uint16(ln.Addr().(*net.TCPAddr).Port)
}

// dial waits until somebody listens.
func (r *rig) dial(h runtime.Handle, p uint16) net.Conn {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err == nil {
			return c
		}
		if st, _ := r.Status(r.t.Context(), h); st.State != runtime.StateRunning || time.Now().After(end) {
			r.t.Fatalf("%v; it is %+v and printed %s", err, st, r.log(h))
		}
	}
}

func TestHandler(t *testing.T) {
	echo, err := os.ReadFile(runtimetest.Module(t))
	if err != nil {
		t.Fatal(err)
	}
	const head = "Content-Type: text/plain\n\n"
	flood := wasmcode.Forever(wasmcode.Print)
	r := newRig(t, map[string][]byte{
		"echo":    echo,
		"hello":   wasmcode.Module{Text: head + "hello", Body: wasmcode.Print}.Encode(),
		"silent":  wasmcode.Module{}.Encode(),
		"plain":   wasmcode.Module{Text: "hello\n", Body: wasmcode.Print}.Encode(),
		"crash":   wasmcode.Module{Body: wasmcode.Crash}.Encode(),
		"fails":   wasmcode.Module{Body: wasmcode.Exit(3)}.Encode(),
		"hang":    wasmcode.Module{Body: wasmcode.Hang}.Encode(),
		"headers": wasmcode.Module{Text: "X-A: b\n", Body: flood}.Encode(),
		"flood":   wasmcode.Module{Text: head + strings.Repeat("x", 4000), Body: flood}.Encode(),
		"late":    wasmcode.Module{Text: head + "hello", Body: append(slices.Clone(wasmcode.Print), wasmcode.Hang...)}.Encode(),
		"large":   wasmcode.Module{Text: head, Body: wasmcode.Print, Pages: 2000}.Encode(),
	})
	serve := func(t *testing.T, memory skerry.Bytes, args ...string) (string, runtime.Handle) {
		t.Helper()
		sp := r.spec(args...)
		sp.Listen, sp.HostNetwork, sp.Env = []uint16{port(t)}, true, []string{"GREETING=ahoy", "HTTP_HOST=wrong"}
		sp.Handler = &runtime.Handler{Timeout: 300 * time.Millisecond, Concurrency: 2, MaxBody: 64 * skerry.KiB}
		if args[0] == "/echo" {
			sp.Handler.Timeout = time.Minute
		}
		sp.Resources.Memory = memory
		h := r.start(sp)
		r.dial(h, sp.Listen[0]).Close()
		return fmt.Sprintf("http://127.0.0.1:%d", sp.Listen[0]), h
	}
	for _, c := range []struct {
		module string
		status int // 0: the connection is cut
		body   string
		log    string
	}{
		{"hello", 200, "hello", ""},
		{"silent", 502, "the service gave no proper answer\n", "before the header"},
		{"plain", 502, "", "before the header"},
		{"crash", 502, "", "the module crashed: "},
		{"fails", 502, "", "it ended with status 3"},
		{"hang", 504, "the service took too long\n", "more than 300ms"},
		{"headers", 502, "", "more than 65536 bytes"},
		{"flood", 0, "", "too large"},
		{"late", 0, "", "more than 300ms"},
		{"large", 503, "the service is busy\n", "begins with 125Mi of memory"},
	} {
		t.Run(c.module, func(t *testing.T) {
			url, h := serve(t, 64*skerry.MiB, "/"+c.module)
			for range 2 { // a run leaves nothing for the next
				resp, err := http.Get(url + "/x")
				status, body := 0, []byte(nil)
				if err == nil {
					status = resp.StatusCode
					if body, err = io.ReadAll(resp.Body); err != nil {
						status = 0
					}
					resp.Body.Close()
				}
				if status != c.status || c.body != "" && string(body) != c.body {
					t.Errorf("%d %q %v", status, body, err)
				}
			}
			if err := r.Stop(t.Context(), h, time.Minute); err != nil {
				t.Fatal(err)
			}
			log := r.log(h)
			if e, err := r.Wait(t.Context(), h); e.Code != 0 || err != nil || c.log != "" && strings.Count(log, c.log) != 2 {
				t.Errorf("it ended as %+v, %v, and printed %q", e, err, log)
			}
		})
	}
	t.Run("end", func(t *testing.T) { // a client has connected, and its request is on its way
		url, h := serve(t, 64*skerry.MiB, "/hello")
		addr := strings.TrimPrefix(url, "http://")
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		resp, err := http.Get(url) // whose connection is accepted after that one
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		stopped := make(chan error, 1)
		go func() { stopped <- r.Stop(t.Context(), h, time.Minute) }()
		for err == nil { // until nobody else is let in
			var other net.Conn
			if other, err = net.Dial("tcp", addr); err == nil {
				other.Close()
			}
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: islet\r\n\r\n")
		if resp, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "hello" {
			t.Errorf("%s %q, %v", resp.Status, text, err)
		}
		c.Close()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	t.Run("request", func(t *testing.T) {
		url, _ := serve(t, 0, "/echo", "cgi")
		post := func(body io.Reader) (int, string, http.Header) {
			t.Helper()
			req, err := http.NewRequest("POST", url+"/a%20b?q=1", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{"X-Trace": {"1", "2"}, "X_trace": {"3"}, "Proxy": {"evil"}, "Content-Type": {"text/x"}}
			req.Host = "islet.example:80"
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text), resp.Header
		}
		status, body, header := post(strings.NewReader("ballast"))
		if status != 201 || header.Get("X-Mule") != "yes" || header.Get("Status") != "" || !strings.HasSuffix(body, "\nballast") {
			t.Errorf("%d %v %q", status, header, body)
		}
		lines := strings.Split(body, "\n")
		for _, want := range []string{"GATEWAY_INTERFACE=CGI/1.1", "REQUEST_METHOD=POST", "PATH_INFO=/a b", "QUERY_STRING=q=1", "CONTENT_LENGTH=7", "CONTENT_TYPE=text/x",
			"HTTP_X_TRACE=1, 2", "HTTP_HOST=islet.example:80", "SERVER_NAME=islet.example", "REMOTE_ADDR=127.0.0.1", "GREETING=ahoy"} {
			if !slices.Contains(lines, want) {
				t.Errorf("%s is missing in %q", want, body)
			}
		}
		if strings.Contains(body, "evil") || strings.Contains(body, "HTTP_X_TRACE=3") {
			t.Errorf("%q", body)
		}
		if status, body, _ := post(strings.NewReader(strings.Repeat("x", 70_000))); status != http.StatusRequestEntityTooLarge {
			t.Errorf("a large body: %d %q", status, body)
		}
		if status, body, _ := post(io.MultiReader(strings.NewReader("x"))); status != http.StatusLengthRequired {
			t.Errorf("a body of unknown length: %d %q", status, body)
		}
	})
}

// TestSockets has a module listen at a port that the driver opened for it. It ends each connection whether or not the client closes it, too.
func TestSockets(t *testing.T) {
	code, err := os.ReadFile(runtimetest.Module(t))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, map[string][]byte{"m": code})
	sp := r.spec("/m", "accept")
	sp.Listen, sp.HostNetwork = []uint16{port(t)}, true
	h := r.start(sp)
	for i := range 3 * collectAfter {
		conn := r.dial(h, sp.Listen[0])
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := conn.Write([]byte("ahoy")); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); string(got) != "ahoy" || err != nil {
			t.Fatalf("%q, %v; it printed %s", got, err, r.log(h))
		}
		if i%10 > 0 {
			conn.Close()
		} else {
			defer conn.Close()
		}
	}
	left, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.PID))
	if err != nil || len(left) > collectAfter+20 {
		t.Errorf("%d descriptors are open, %v", len(left), err)
	}
}

// FuzzAnswer: whatever a module prints, its client gets a proper answer, the same one however it is cut into pieces.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		print := func(pieces ...[]byte) (*httptest.ResponseRecorder, error) {
			w := httptest.NewRecorder()
			a := &answer{w: w, left: 1000, full: func() {}}
			for _, p := range pieces {
				if n, err := a.Write(p); err == nil && n != len(p) {
					t.Errorf("%d of %d bytes were taken", n, len(p))
				}
			}
			if a.err == nil && !a.begun {
				return w, io.ErrUnexpectedEOF
			}
			return w, a.err
		}
		w, err := print(data)
		if err == nil && (w.Code < 200 || w.Code > 599 || w.Header().Get("Content-Length") != "" || w.Body.Len() > 1000) {
			t.Errorf("%d %v", w.Code, w.Header())
		}
		if cut <= 0 || cut >= len(data) {
			return
		}
		again, err2 := print(data[:cut], data[cut:])
		if (err == nil) != (err2 == nil) || err == nil && (w.Code != again.Code || w.Body.String() != again.Body.String()) {
			t.Errorf("in two pieces: %v %d %q, not %v %d %q", err2, again.Code, again.Body, err, w.Code, w.Body)
		}
	})
}
