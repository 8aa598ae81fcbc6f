package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"skerry.dev/skerry/internal/execstream"
)

// TestWebSocketCarriesFrames sends frames through a WebSocket, a proxy as between tiers, and back.
func TestWebSocketCarriesFrames(t *testing.T) {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("refuse") {
			http.Error(w, "no such container", http.StatusNotFound)
			return
		}
		if h := r.Header.Get("Sec-Websocket-Protocol"); h != "" {
			t.Errorf("the worker sees the protocols %q, and with them the token", h)
		}
		conn, buf, err := execstream.Accept(w, r, execstream.ProtoExec)
		if err != nil {
			return
		}
		defer conn.Close()
		x := execstream.New(struct {
			io.Reader
			io.Writer
		}{buf, conn})
		for {
			kind, p, err := x.Read()
			if err != nil || kind == execstream.StdinEOF {
				x.WriteJSON(execstream.Exit, execstream.Result{Code: 7})
				return
			}
			x.Write(execstream.Stdout, bytes.ToUpper(p))
		}
	}))
	defer worker.Close()
	at, _ := url.Parse(worker.URL)
	proxy := &httputil.ReverseProxy{Rewrite: func(pr *httputil.ProxyRequest) { pr.SetURL(at) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := webSocketToken(r); got != "a.b-c_d" {
			t.Errorf("token %q", got)
		}
		w, r = asStream(w, r)
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	dial := websocket.Dialer{Subprotocols: []string{webSocketExec, webSocketBearer + "a.b-c_d"}}
	ws, res, err := dial.Dial(strings.Replace(front.URL, "http", "ws", 1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	if p := res.Header.Get("Sec-Websocket-Protocol"); p != webSocketExec {
		t.Errorf("answered protocol %q", p)
	}
	var frames bytes.Buffer
	x := execstream.New(&frames)
	x.Write(execstream.Stdin, []byte("tide"))
	x.Write(execstream.StdinEOF, nil)
	// Messages need not end where frames do.
	all := frames.Bytes()
	for _, part := range [][]byte{all[:3], all[3:8], all[8:]} {
		if err := ws.WriteMessage(websocket.BinaryMessage, part); err != nil {
			t.Fatal(err)
		}
	}
	var back bytes.Buffer
	for {
		_, p, err := ws.ReadMessage()
		if err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Fatalf("the stream ends with %v", err)
			}
			break
		}
		back.Write(p)
	}
	y := execstream.New(&back)
	if kind, p, err := y.Read(); err != nil || kind != execstream.Stdout || string(p) != "TIDE" {
		t.Fatalf("%v %q %v", kind, p, err)
	}
	if kind, p, err := y.Read(); err != nil || kind != execstream.Exit || string(p) != `{"code":7}` {
		t.Fatalf("%v %q %v", kind, p, err)
	}
	if _, res, err := dial.Dial(strings.Replace(front.URL, "http", "ws", 1)+"?refuse=1", nil); err == nil || res == nil || res.StatusCode != http.StatusNotFound {
		t.Fatalf("a refusal of the worker becomes %v, %v", res, err)
	}
}
