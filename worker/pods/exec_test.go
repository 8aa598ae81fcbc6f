package pods

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/execstream"
)

// What Kubernetes says of the end of a command is its exit status, or why it could not be run.
func TestStatusOfCommands(t *testing.T) {
	for text, want := range map[string]execstream.Result{
		`{"status":"Success"}`: {},
		`{"status":"Failure","reason":"NonZeroExitCode","message":"command terminated with non-zero exit code",` +
			`"details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`: {Code: 7},
		`{"status":"Failure","message":"exec: \"nope\" not found"}`: {Code: 126,
			Error: `Kubernetes cannot run it: exec: "nope" not found`},
		`{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"70000"}]}}`: {Code: 126, Error: "Kubernetes cannot run it"},
		`nonsense`: {Code: 126, Error: "Kubernetes does not say how the command ended"},
	} {
		if got := readStatus([]byte(text)); got != want {
			t.Errorf("readStatus(%s) = %+v, want %+v", text, got, want)
		}
	}
}

func FuzzStatusOfCommands(f *testing.F) {
	f.Add([]byte(`{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}`))
	f.Add([]byte(`{"status":"Success"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		got := readStatus(data)
		if got.Code < 0 || got.Code > 255 || len(got.Error) > 2*maxReason || strings.ContainsAny(got.Error, "\n\x1b") {
			t.Errorf("readStatus(%q) = %+v, want a status, and one line", data, got)
		}
	})
}

// An API server that does not run commands says why; one that is too old is told from one that refuses.
func TestCommandsThatAreRefused(t *testing.T) {
	answer := http.StatusForbidden
	url := answering(t, func(to http.ResponseWriter, r *http.Request) {
		if answer != http.StatusSwitchingProtocols {
			to.WriteHeader(answer)
			fmt.Fprint(to, `{"reason":"Forbidden","message":"pods \"x\" is forbidden"}`)
			return
		}
		u := websocket.Upgrader{Subprotocols: []string{"v4.channel.k8s.io"}}
		if conn, err := u.Upgrade(to, r, nil); err == nil {
			conn.Close()
		}
	})
	worker := alone(t, url)
	try := func() string {
		conn, err := worker.fleet.opt.Client.upgrade(t.Context(), url+"/x")
		if err == nil {
			conn.Close()
		}
		return fmt.Sprint(err)
	}
	if got, want := try(), "Kubernetes refuses: pods \"x\" is forbidden (Forbidden, status 403)"; got != want {
		t.Errorf("upgrade = %q, want %q", got, want)
	}
	answer = http.StatusSwitchingProtocols
	if got, want := try(), "unsupported: commands: this Kubernetes does not speak v5.channel.k8s.io; 1.31 and later do"; got != want {
		t.Errorf("upgrade = %q, want %q", got, want)
	}
}

// What a caller sends arrives on the channels of Kubernetes, with the end of the input, and what these say arrives at the caller.
func TestCommandIsPassedOn(t *testing.T) {
	url := answering(t, func(to http.ResponseWriter, r *http.Request) {
		u := websocket.Upgrader{Subprotocols: []string{execProtocol}}
		conn, err := u.Upgrade(to, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			_, data, err := conn.ReadMessage()
			if err != nil {
				return
			}
			_ = conn.WriteMessage(websocket.BinaryMessage, fmt.Appendf([]byte{channelStdout}, "%d:%s;", data[0], data[1:]))
			if data[0] == channelClose {
				_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x02hm"))
				_ = conn.WriteMessage(websocket.BinaryMessage, []byte("\x03"+`{"status":"Success"}`))
			}
		}
	})
	there, err := alone(t, url).fleet.opt.Client.upgrade(t.Context(), url+"/x")
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	caller, worker := execstream.New(near), execstream.New(far)
	go func() {
		_ = worker.WriteJSON(execstream.Exit, shown(worker, there))
	}()
	go typed(worker, there, true)
	go func() {
		_ = caller.WriteJSON(execstream.Resize, execstream.Size{Rows: 2, Cols: 3})
		_ = caller.Write(execstream.Stdin, []byte("in"))
		_ = caller.Write(execstream.StdinEOF, nil)
		_ = caller.Write(execstream.Stdin, []byte("late"))
	}()
	defer near.Close()
	got := map[execstream.Type]string{}
	for got[execstream.Exit] == "" {
		kind, data, err := caller.Read()
		if err != nil {
			t.Fatalf("read = %v after %q", err, got)
		}
		got[kind] += string(data)
	}
	want := map[execstream.Type]string{execstream.Stdout: "4:{\"Width\":3,\"Height\":2};0:in;255:\x00;", execstream.Stderr: "hm",
		execstream.Exit: `{"code":0}`}
	if !maps.Equal(got, want) {
		t.Errorf("the caller got %q, want %q", got, want)
	}
}

// The command line tells a terminal's kind in a variable; Kubernetes gives a terminal one of its own. Other variables are refused.
func TestTerminalIsNotRefused(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	for query, want := range map[string]skerry.Code{
		"tty=true&env=TERM%3Dxterm":          skerry.CodeUnavailable, // as there is no such instance yet
		"env=TERM%3Dxterm":                   skerry.CodeUnsupported,
		"tty=true&env=TERM%3Dxterm&env=A%3D": skerry.CodeUnsupported,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/instances/web-1/exec?command=sh&"+query, nil)
		r.Header.Set("Upgrade", execstream.ProtoExec)
		if err := worker.serveExec(httptest.NewRecorder(), r, "web-1"); skerry.AsError(err).Code != want {
			t.Errorf("exec with %s = %v, want %s", query, err, want)
		}
	}
}

// A request that cannot become a stream is refused before Kubernetes has begun the command.
func TestCommandNeedsUpgrade(t *testing.T) {
	worker := alone(t, "http://127.0.0.1:1")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/instances/web-1/exec?command=sh", nil)
	to := httptest.NewRecorder()
	if err := worker.serveExec(to, r, "web-1"); err != nil || to.Code != http.StatusUpgradeRequired {
		t.Errorf("exec without an upgrade = %v, status %d, want status 426", err, to.Code)
	}
}
