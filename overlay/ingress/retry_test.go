package ingress

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// TestRequestsAreSentAgain has instances that are gone: dialled, or in the midst of a request.
func TestRequestsAreSentAgain(t *testing.T) {
	in, w, addr := start(t, Options{})
	var n atomic.Int64
	w.serve(t, "7/10.30.0.1:80", func(rw http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			c, _, _ := rw.(http.Hijacker).Hijack()
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
			return
		}
		fmt.Fprint(rw, "served")
	})
	set(t, in, Config{Listeners: []Listener{web(Route{Name: "shop", Net: 7, Targets: to("10.30.0.1:80"), Fresh: true})}})
	for range 5 {
		if got := raw(t, addr(80), get("x.org", "/")); len(got) != 1 || got[0] != "200 served" {
			t.Fatalf("%q", got)
		}
	}
	// What may change something is sent once.
	n.Store(0)
	if got := raw(t, addr(80), "POST / HTTP/1.1\r\nHost: x.org\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"); len(got) != 1 || !strings.HasPrefix(got[0], "502") || n.Load() != 1 {
		t.Errorf("%q after %d", got, n.Load())
	}
	// Before anything was sent, whatever it is.
	w.refuse.Store(2)
	n.Store(1)
	if got := raw(t, addr(80), "POST / HTTP/1.1\r\nHost: x.org\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"); len(got) != 1 || got[0] != "200 served" {
		t.Errorf("%q", got)
	}
}
