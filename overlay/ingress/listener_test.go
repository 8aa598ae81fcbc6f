package ingress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"testing"

	"skerry.dev/skerry/spec"
)

// A client has connected, and its request is on its way when the end comes: it is answered. http.Server alone would close the connection.
func TestRequestThatComesAtTheEnd(t *testing.T) {
	ca, _ := authority(t)
	for _, certificate := range []spec.IngressTLS{"", spec.TLSSelf} {
		t.Run("certificate "+string(certificate), func(t *testing.T) {
			in, w, addr := start(t, Options{})
			w.serve(t, "1/10.30.1.1:80", func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "here") })
			r := Route{Host: "shop.example.org", Net: 1, Targets: to("10.30.1.1:80"), TLS: certificate}
			set(t, in, Config{Listeners: []Listener{web(r)}, Authority: &ca})
			c, err := net.Dial("tcp", addr(80))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for in.Stats().Conns == 0 { // it may not be accepted yet
				runtime.Gosched()
			}
			done := make(chan error)
			go func() { done <- in.Shutdown(t.Context()) }()
			for err == nil { // until nobody else is let in
				var other net.Conn
				if other, err = net.Dial("tcp", addr(80)); err == nil {
					other.Close()
				}
			}
			if certificate != "" {
				c = tls.Client(c, &tls.Config{ServerName: "shop.example.org", InsecureSkipVerify: true})
			}
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example.org\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "here" {
				t.Errorf("%s %q, %v", resp.Status, text, err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}
