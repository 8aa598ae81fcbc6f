package pods

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/worker/core"
)

// ServeHTTP answers what the cluster asks about an instance: its logs, commands in it, and a way to its ports. What else a worker answers
// is refused.
func (w *Worker) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/instances/")
	id, what, _ := strings.Cut(rest, "/")
	var err error
	switch {
	case strings.HasPrefix(r.URL.Path, "/snapshots/"):
		err = skerry.Errorf(skerry.CodeUnsupported, "a worker that is a node of Kubernetes takes no snapshots, and restores none").
			WithHint("its volumes are claims, which have the annotation %s: use the snapshots of their storage class", volumeNote)
	case !ok || id == "":
		err = skerry.Errorf(skerry.CodeNotFound, "a worker that is a node of Kubernetes does not answer %s", r.URL.Path)
	case what == "logs":
		err = w.serveLogs(to, r, skerry.InstanceID(id))
	case what == "exec":
		err = w.serveExec(to, r, skerry.InstanceID(id))
	case what == "portforward":
		err = w.serveForward(to, r, skerry.InstanceID(id))
	default:
		err = skerry.Errorf(skerry.CodeUnsupported, "a worker that is a node of Kubernetes does not do %s", what).
			WithHint("use kubectl; `skerry describe instance %s` shows its worker, and its pods have the annotation %s", id, instanceNote)
	}
	if err != nil {
		tier.WriteProblem(to, skerry.AsError(err))
	}
}

// found is the container of a pod that a request is about.
type found struct {
	pod      *Pod
	name     string
	previous bool // its last start but one
}

// find gives the container of the last attempt of an instance that has begun, or of the one before.
func (w *Worker) find(r *http.Request, id skerry.InstanceID, previous bool) (*found, error) {
	out := &found{name: cmp.Or(r.URL.Query().Get("container"), mainContainer)}
	names, err := tier.View(r.Context(), w.role.Load(), func(c *core.Core) (names []string, _ error) {
		if v, ok := core.ViewOf(c, id); ok {
			for _, it := range containersOf(&v.Assignment().Spec) {
				names = append(names, it.Name)
			}
		}
		return names, nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(names) == 0:
		return nil, skerry.Errorf(skerry.CodeNotFound, "instance %q is not on this worker", id)
	case !slices.Contains(names, out.name):
		return nil, skerry.Errorf(skerry.CodeNotFound, "instance %s has no container %q", id, out.name).
			WithHint("it has: %s", strings.Join(names, ", "))
	}
	var pods []*Pod
	for _, pod := range w.fleet.ofWorker(w.name) {
		if pod.Metadata.Annotations[instanceNote] == string(id) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return cmp.Compare(attemptOf(b), attemptOf(a)) })
	switch {
	case len(pods) > 0 && previous && restarts(pods[0], out.name) > 0:
		out.previous = true
	case len(pods) > 1 && (previous || !begun(pods[0], out.name)): // the new one has written nothing yet
		pods = pods[1:]
	case previous:
		pods = nil
	}
	if len(pods) == 0 || !begun(pods[0], out.name) {
		return nil, skerry.Errorf(skerry.CodeUnavailable, "container %s of %s has not started yet, or is gone", out.name, id).
			WithHint("`skerry describe instance %s` shows its progress", id)
	}
	out.pod = pods[0]
	return out, nil
}

// attemptOf gives the attempt that a pod is; 0: it does not say.
func attemptOf(pod *Pod) int {
	attempt, _ := strconv.Atoi(pod.Metadata.Annotations[attemptNote])
	return attempt
}

func restarts(pod *Pod, name string) int {
	if s := statusOf(pod, name); s != nil {
		return s.RestartCount
	}
	return 0
}

// begun reports whether a container of a pod has started.
func begun(pod *Pod, name string) bool {
	if name == mainContainer {
		s := Look(pod, time.Now())
		return s.Stage >= Running && s.Init == ""
	}
	s := statusOf(pod, name)
	return s != nil && (s.State.Running != nil || s.State.Terminated != nil || s.LastState.Terminated != nil)
}

// logLine is one entry, as every worker gives it.
type logLine struct {
	Time   time.Time `json:"time"`
	Stream string    `json:"stream"`
	Line   string    `json:"line"`
}

// lineMost is the longest entry; what is longer arrives in pieces.
const lineMost = 1 << 20

// serveLogs answers with one JSON object a line. Kubernetes does not tell standard error from standard output.
func (w *Worker) serveLogs(to http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	asked := r.URL.Query()
	from, err := w.find(r, id, asked.Get("previous") == "true")
	if err != nil {
		return err
	}
	query := url.Values{"container": {from.name}, "timestamps": {"true"}}
	if from.previous {
		query.Set("previous", "true")
	}
	if asked.Get("follow") == "true" {
		query.Set("follow", "true")
	}
	if t := asked.Get("tail"); t != "" {
		n, err := strconv.Atoi(t)
		if err != nil || n < 0 {
			return skerry.Errorf(skerry.CodeInvalid, "tail %q is not a number", t)
		}
		query.Set("tailLines", t)
	}
	if t := asked.Get("since"); t != "" {
		at, err := time.Parse(time.RFC3339Nano, t)
		if err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "since %q is not a time as in RFC 3339", t)
		}
		query.Set("sinceTime", at.UTC().Format(time.RFC3339))
	}
	path := podPath(w.fleet.opt.Style.Namespace, from.pod.Metadata.Name) + "/log"
	body, err := w.fleet.opt.Client.open(r.Context(), http.MethodGet, path, query, nil)
	if err != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "logs of %s: %v", id, err)
	}
	defer body.Close()
	sendLines(to, body)
	return nil
}

// sendLines answers with a log to its end. An answer that does not get there is cut, so that it is not taken for the whole.
func sendLines(to http.ResponseWriter, body io.Reader) {
	to.Header().Set("Content-Type", "application/x-ndjson")
	to.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(to)
	_ = flush.Flush()
	lines, out := bufio.NewReaderSize(body, lineMost), json.NewEncoder(to)
	for {
		text, err := lines.ReadSlice('\n')
		if len(text) > 0 && out.Encode(parseLine(strings.TrimSuffix(string(text), "\n"))) != nil {
			return // the reader has gone
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			return
		case err != nil:
			_ = flush.Flush() // what there is
			panic(http.ErrAbortHandler)
		}
		if lines.Buffered() == 0 {
			_ = flush.Flush()
		}
	}
}

// parseLine takes the time from the beginning of a line. A piece of one has none.
func parseLine(text string) logLine {
	stamp, rest, _ := strings.Cut(text, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		at, rest = time.Time{}, text
	}
	return logLine{at, "stdout", rest}
}

// routes are where a port of an instance may be reached: at its node, then at its pod. Both addresses are what a kubelet says.
func (w *Worker) routes(pod *Pod, id skerry.InstanceID, port int) (out []string) {
	add := func(host string, port int) {
		if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsGlobalUnicast() {
			out = append(out, net.JoinHostPort(host, strconv.Itoa(port)))
		}
	}
	node, _, _ := w.fleet.node(w.node)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.ports[id] {
		if b.Port == port && b.HostPort > 0 && node != nil {
			add(address(node), b.HostPort)
		}
	}
	add(pod.Status.PodIP, port)
	return out
}

// serveForward joins an upgraded connection to a port of the instance.
func (w *Worker) serveForward(to http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	port, err := strconv.Atoi(r.URL.Query().Get("port"))
	if err != nil || port < 1 || port > 65535 {
		return skerry.Errorf(skerry.CodeInvalid, "port %q is not a port", r.URL.Query().Get("port"))
	}
	of, err := w.find(r, id, false)
	if err != nil {
		return err
	}
	var there net.Conn
	err = net.ErrClosed
	for _, at := range w.routes(of.pod, id, port) {
		d := net.Dialer{Timeout: 5 * time.Second}
		if there, err = d.DialContext(r.Context(), "tcp", at); err == nil {
			break
		}
	}
	if err != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "port %d of %s does not answer: %v", port, id, err).
			WithHint("publish it with hostPort, or run skerry-kubernetes where pods can be reached")
	}
	defer there.Close()
	conn, buf, err := execstream.Accept(to, r, execstream.ProtoForward)
	if err != nil {
		return nil // it was answered
	}
	defer conn.Close()
	w.join(conn, buf, there)
	return nil
}

// join passes on what each of two connections has for the other, until both have ended, or this life of the worker has.
func (w *Worker) join(conn net.Conn, buf io.Reader, there net.Conn) {
	stop := context.AfterFunc(w.work.Load().Ctx, func() {
		conn.Close()
		there.Close()
	})
	defer stop()
	done := make(chan struct{}, 2)
	go func() {
		_, _ = io.Copy(there, buf)
		if t, ok := there.(*net.TCPConn); ok {
			_ = t.CloseWrite()
		}
		done <- struct{}{}
	}()
	go func() {
		_, _ = io.Copy(conn, there)
		conn.Close() // there is no half-close on a stream
		done <- struct{}{}
	}()
	<-done
	<-done
}
