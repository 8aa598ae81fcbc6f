package ingress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"skerry.dev/skerry/spec"
)

// What comes for a service without an instance waits for one, and who waits is told; where routes do not hold, and when it
// takes too long, it is turned away.
func TestHold(t *testing.T) {
	told := make(chan struct{}, 100)
	in, w, addr := start(t, Options{Waits: func() { told <- struct{}{} }})
	w.serve(t, "7/10.30.1.1:80", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "awake %s", body)
	})
	route := func(host string, hold time.Duration, at string) Route {
		r := Route{Name: "d/a/" + host, Host: host, Net: 7, Hold: hold}
		if at != "" {
			r.Targets = to(at)
		}
		return r
	}
	tcp := func(at string) Listener {
		r := Route{Name: "d/a/tcp", Net: 7, Hold: time.Minute}
		if at != "" {
			r.Targets = to(at)
		}
		return Listener{Addr: port(9000), Protocol: spec.IngressTCP, Routes: []Route{r}}
	}
	set(t, in, Config{Listeners: []Listener{web(route("sleeps", time.Minute, ""), route("never", 30*time.Millisecond, ""), route("other", 0, "")), tcp("")}})
	for _, host := range []string{"other", "never"} {
		if out := raw(t, addr(80), get(host, "/")); !strings.Contains(out[0], "503") {
			t.Errorf("%s: %v", host, out)
		}
	}
	ask := func() (string, error) {
		req, err := http.NewRequest(http.MethodPost, "http://"+addr(80)+"/", strings.NewReader("body"))
		if err != nil {
			return "", err
		}
		req.Host = "sleeps"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	const n = 20
	answers := make(chan string, n+1)
	for range n {
		go func() {
			out, err := ask()
			if err != nil {
				out = err.Error()
			}
			answers <- out
		}()
	}
	go func() {
		c, err := net.Dial("tcp", addr(9000))
		if err != nil {
			answers <- err.Error()
			return
		}
		defer c.Close()
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			answers <- err.Error()
			return
		}
		b, _ := io.ReadAll(resp.Body)
		answers <- string(b)
	}()
	for !slices.Equal(in.Waiting(), []string{"d/a/sleeps", "d/a/tcp"}) {
		<-told
	}
	// Others change, and nothing happens to what waits.
	set(t, in, Config{Listeners: []Listener{web(route("sleeps", time.Minute, ""), route("new", 0, "")), tcp("")}})
	select {
	case out := <-answers:
		t.Errorf("it got %q from nobody", out)
	default:
	}
	set(t, in, Config{Listeners: []Listener{web(route("sleeps", time.Minute, "10.30.1.1:80")), tcp("10.30.1.1:80")}})
	for range n + 1 {
		if out := <-answers; out != "awake body" {
			t.Errorf("answered %q", out)
		}
	}
	for len(in.Waiting()) > 0 {
		<-told
	}
	// A service that is no longer offered lets its clients go, and so does the end.
	for _, end := range []func(){
		func() { set(t, in, Config{Listeners: []Listener{web(route("other", 0, ""))}}) },
		func() { in.Close() },
	} {
		set(t, in, Config{Listeners: []Listener{web(route("sleeps", time.Minute, ""))}})
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = ask()
		}()
		for len(in.Waiting()) == 0 {
			<-told
		}
		end()
		<-gone
	}
}
