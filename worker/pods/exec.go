package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/execstream"
)

// Channels of a WebSocket on which Kubernetes runs a command: the first byte of a message.
const (
	channelStdin  = 0
	channelStdout = 1
	channelStderr = 2
	channelStatus = 3 // from the server: a Status, the last
	channelResize = 4
	channelClose  = 255 // to the server: with the channel that has ended
)

// execProtocol is the version from which on the end of the input can be told: of Kubernetes 1.31 and later.
const execProtocol = "v5.channel.k8s.io"

// execMost bounds one message of the API server.
const execMost = 1 << 20

// upgrader opens WebSockets at the API server as whoever a configuration says.
func upgrader(config *rest.Config) (func(ctx context.Context, url string) (*websocket.Conn, error), error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, url string) (*websocket.Conn, error) {
		dialer := websocket.Dialer{TLSClientConfig: tls, Proxy: http.ProxyFromEnvironment, HandshakeTimeout: requestTime,
			Subprotocols: []string{execProtocol}}
		if config.Proxy != nil {
			dialer.Proxy = config.Proxy
		}
		var conn *websocket.Conn
		// What adds tokens wraps what sends a request.
		sender, err := rest.HTTPWrappersForConfig(config, sends(func(r *http.Request) (*http.Response, error) {
			target := *r.URL
			target.Scheme = "ws" + strings.TrimPrefix(target.Scheme, "http")
			var res *http.Response
			var err error
			if conn, res, err = dialer.DialContext(ctx, target.String(), r.Header); errors.Is(err, websocket.ErrBadHandshake) {
				return res, nil
			}
			return res, err
		}))
		if err != nil {
			return nil, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		res, err := sender.RoundTrip(req)
		switch {
		case err != nil:
			return nil, fmt.Errorf("the API server of Kubernetes cannot be reached: %w", err)
		case conn == nil:
			data, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10))
			return nil, refusal(res.StatusCode, res.Header.Get("Retry-After"), data)
		case conn.Subprotocol() != execProtocol:
			conn.Close()
			return nil, &Unsupported{"commands", "this Kubernetes does not speak " + execProtocol + "; 1.31 and later do"}
		}
		conn.SetReadLimit(execMost)
		return conn, nil
	}, nil
}

// sends is a function that sends requests.
type sends func(r *http.Request) (*http.Response, error)

func (f sends) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serveExec runs a command in the container of an instance, over an upgraded connection; see package execstream. The kubelet runs it, with
// the user and the variables of the container.
func (w *Worker) serveExec(to http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	if r.Header.Get("Upgrade") != execstream.ProtoExec { // else the command would run, and nobody see how it ends
		_, _, _ = execstream.Accept(to, r, execstream.ProtoExec)
		return nil
	}
	asked := r.URL.Query()
	// What `skerry exec --tty` says of the caller's terminal; Kubernetes sets it for those that it makes.
	ofTerminal := func(env string) bool { return asked.Get("tty") == "true" && strings.HasPrefix(env, "TERM=") }
	switch {
	case len(asked["command"]) == 0:
		return skerry.Errorf(skerry.CodeInvalid, "a command is missing")
	case asked.Get("user") != "":
		return skerry.Errorf(skerry.CodeUnsupported, "in a pod a command runs as the user of the container").WithHint("omit the user")
	case len(slices.DeleteFunc(asked["env"], ofTerminal)) > 0:
		return skerry.Errorf(skerry.CodeUnsupported, "in a pod a command has the variables of the container").
			WithHint("run `env NAME=VALUE COMMAND`, if the image has such a program")
	}
	in, err := w.find(r, id, false)
	if err != nil {
		return err
	}
	if s := statusOf(in.pod, in.name); s == nil || s.State.Running == nil {
		return skerry.Errorf(skerry.CodeUnavailable, "container %s of %s does not run", in.name, id).
			WithHint("`skerry describe instance %s` shows its progress", id)
	}
	tty, stdin := asked.Get("tty") == "true", asked.Get("stdin") == "true"
	query := url.Values{"container": {in.name}, "command": asked["command"], "stdout": {"true"},
		"stderr": {strconv.FormatBool(!tty)}, "tty": {strconv.FormatBool(tty)}, "stdin": {strconv.FormatBool(stdin)}}
	client := w.fleet.opt.Client
	path := podPath(w.fleet.opt.Style.Namespace, in.pod.Metadata.Name) + "/exec"
	there, err := client.upgrade(r.Context(), client.base+path+"?"+query.Encode())
	switch _, cannot := errors.AsType[*Unsupported](err); {
	case status(err) == http.StatusForbidden:
		return skerry.Errorf(skerry.CodeForbidden, "run a command in %s: %v", id, err).
			WithHint("the service account of skerry-kubernetes needs the verbs get and create of pods/exec")
	case cannot:
		return skerry.Errorf(skerry.CodeUnsupported, "run a command in %s: %v", id, err)
	case err != nil:
		return skerry.Errorf(skerry.CodeUnavailable, "run a command in %s: %v", id, err)
	}
	defer there.Close()
	conn, buf, err := execstream.Accept(to, r, execstream.ProtoExec)
	if err != nil {
		return nil // it was answered
	}
	defer conn.Close()
	defer context.AfterFunc(w.work.Load().Ctx, func() {
		conn.Close()
		there.Close()
	})()
	ec := execstream.New(execstream.Joined{Conn: conn, R: buf})
	over, end := context.WithCancel(context.Background())
	defer end()
	go typed(ec, there, stdin)
	go ec.CallBack(over, execstream.CallEvery, func() { there.Close() })
	_ = ec.WriteJSON(execstream.Exit, shown(ec, there))
	return nil
}

// shown passes on what a command prints, and says how it ended.
func shown(ec *execstream.Conn, there *websocket.Conn) execstream.Result {
	for {
		_, data, err := there.ReadMessage()
		if err != nil {
			return execstream.Result{Code: notRun, Error: "the API server of Kubernetes ended the connection: " + clean(err.Error(), maxReason)}
		}
		if len(data) == 0 {
			continue
		}
		to := execstream.Stdout
		switch data[0] {
		case channelStatus:
			return readStatus(data[1:])
		case channelStderr:
			to = execstream.Stderr
		case channelStdout:
		default:
			continue
		}
		if len(data) > 1 && ec.Write(to, data[1:]) != nil {
			return execstream.Result{Code: notRun} // nobody hears it
		}
	}
}

// notRun is the exit status of a command that could not be run, as other workers give it.
const notRun = 126

// readStatus reads what Kubernetes says of a command that has ended.
func readStatus(data []byte) execstream.Result {
	var said struct {
		Status  string `json:"status"`
		Message string `json:"message"`
		Details struct {
			Causes []struct {
				Reason  string `json:"reason"`
				Message string `json:"message"`
			} `json:"causes"`
		} `json:"details"`
	}
	if err := json.Unmarshal(data, &said); err != nil {
		return execstream.Result{Code: notRun, Error: "Kubernetes does not say how the command ended"}
	}
	if said.Status == "Success" {
		return execstream.Result{}
	}
	for _, cause := range said.Details.Causes {
		if code, err := strconv.Atoi(cause.Message); cause.Reason == "ExitCode" && err == nil && code > 0 && code < 256 {
			return execstream.Result{Code: code}
		}
	}
	return execstream.Result{Code: notRun, Error: why("Kubernetes cannot run it", said.Message)}
}

// typed passes on what the caller sends, until the connection ends; then that to Kubernetes ends, too.
func typed(ec *execstream.Conn, there *websocket.Conn, stdin bool) {
	defer there.Close()
	for {
		kind, data, err := ec.Read()
		if err != nil {
			return
		}
		var message []byte
		switch {
		case kind == execstream.Stdin && stdin:
			message = slices.Insert(data, 0, channelStdin)
		case kind == execstream.StdinEOF && stdin:
			message, stdin = []byte{channelClose, channelStdin}, false
		case kind == execstream.Resize:
			var size execstream.Size
			if json.Unmarshal(data, &size) != nil {
				continue
			}
			message = fmt.Appendf([]byte{channelResize}, `{"Width":%d,"Height":%d}`, size.Cols, size.Rows)
		default:
			continue
		}
		if there.WriteMessage(websocket.BinaryMessage, message) != nil {
			return
		}
	}
}
