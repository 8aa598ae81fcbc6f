//go:build linux

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/execstream"
	"skerry.dev/skerry/internal/loop"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

// ServeHTTP answers what the cluster asks about an instance: /instances/ID/logs, exec, portforward, metrics and stats,
// and about round trips: /measure, of other workers: /reach, by which ways they are reached: /overlay, and snapshots of
// local volumes: /snapshots.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/instances/")
	id, what, _ := strings.Cut(rest, "/")
	to := requests{s}
	var err error
	switch {
	case r.URL.Path == "/reach" && r.Method == http.MethodGet:
		err = to.serveReach(w, r)
	case r.URL.Path == "/measure" && r.Method == http.MethodGet:
		err = to.serveMeasure(w, r)
	case r.URL.Path == "/overlay" && r.Method == http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		err = json.NewEncoder(w).Encode(overlayView(s.Overlay(r.Context())))
	case r.URL.Path == "/clients" && r.Method == http.MethodGet:
		err = to.serveClients(w, r)
	case strings.HasPrefix(r.URL.Path, "/snapshots/"):
		err = serveSnapshots(s, w, r)
	case !ok || id == "":
		err = skerry.Errorf(skerry.CodeNotFound, "a worker does not answer %s", r.URL.Path)
	case what == "logs":
		err = to.serveLogs(w, r, skerry.InstanceID(id))
	case what == "exec":
		err = to.serveExec(w, r, skerry.InstanceID(id))
	case what == "portforward":
		err = to.serveForward(w, r, skerry.InstanceID(id))
	case what == "metrics":
		err = to.serveMetrics(w, r, skerry.InstanceID(id))
	case what == "checkpoint" && r.Method == http.MethodGet:
		err = to.serveCheckpoint(w, r, skerry.InstanceID(id))
	case what == "stats":
		err = to.serveStats(w, r, skerry.InstanceID(id))
	default:
		err = skerry.Errorf(skerry.CodeNotFound, "a worker does not answer %s", r.URL.Path)
	}
	if err != nil {
		tier.WriteProblem(w, skerry.AsError(err))
	}
}

// find gives the driver of a container of an instance, and its handle, which of gives; nil: of the attempt that runs.
func (q requests) find(ctx context.Context, id skerry.InstanceID, name string,
	of func(c *core.Core, id skerry.InstanceID, name string) json.RawMessage) (runtime.Driver, runtime.Handle, error) {
	if name == "" {
		name = spec.MainContainer
	}
	var handle json.RawMessage
	var assigned spec.Assignment
	var ok bool
	if err := q.Role.View(ctx, func(c loop.Core) {
		if assigned, handle, _, ok = c.(*core.Core).Assignment(id, name); of != nil {
			handle = of(c.(*core.Core), id, name)
		}
	}); err != nil {
		return nil, runtime.Handle{}, err
	}
	if !ok {
		return nil, runtime.Handle{}, skerry.Errorf(skerry.CodeNotFound, "instance %q is not on this worker", id)
	}
	if k, _ := containerOf(&assigned.Spec, name); k == nil {
		return nil, runtime.Handle{}, skerry.Errorf(skerry.CodeNotFound, "instance %s has no container %q", id, name).
			WithHint("it has: %s", strings.Join(containerNames(&assigned.Spec), ", "))
	}
	if len(handle) == 0 {
		return nil, runtime.Handle{}, skerry.Errorf(skerry.CodeUnavailable, "container %s of %s has not started yet", name, id).
			WithHint("`skerry describe instance %s` shows its progress", id)
	}
	return q.runtimes.of(handle)
}

func containerNames(s *spec.ServiceSpec) []string {
	out := []string{spec.MainContainer}
	for _, list := range [][]spec.SideContainer{s.Init, s.Sidecars} {
		for _, c := range list {
			out = append(out, c.Name)
		}
	}
	return out
}

// serveLogs answers with one JSON object a line: time, stream, line.
func (q requests) serveLogs(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	query := r.URL.Query()
	driver, handle, err := q.find(r.Context(), id, query.Get("container"), core.LastLog)
	if err != nil {
		return err
	}
	l, ok := driver.(runtime.Logger)
	if !ok {
		return skerry.Errorf(skerry.CodeUnsupported, "runtime %s keeps no logs", driver.Name())
	}
	o := runtime.LogOptions{Follow: query.Get("follow") == "true", Previous: query.Get("previous") == "true"}
	if t := query.Get("tail"); t != "" {
		n, err := strconv.Atoi(t)
		if err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "tail %q is not a number", t)
		}
		if o.Tail = n; n == 0 {
			o.Tail = -1
		}
	}
	if t := query.Get("since"); t != "" {
		if o.Since, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "since %q is not a time as in RFC 3339", t)
		}
	}
	st, err := l.OpenLog(r.Context(), handle, o)
	if err != nil {
		if errors.Is(err, runtime.ErrNotFound) {
			return skerry.Errorf(skerry.CodeNotFound, "there is no such log of %s", id)
		}
		return err
	}
	defer func() { st.Close() }()
	var first *runtime.LogEntry
	if !o.Follow && !o.Previous { // one that has just been started again may have written nothing yet: then the run before is meant
		e, err := st.Next()
		if o.Previous = err == io.EOF; err == nil {
			first = &e
		} else if err != io.EOF {
			return fmt.Errorf("log of %s: %w", id, err)
		} else if before, err := l.OpenLog(r.Context(), handle, o); err == nil {
			st.Close()
			st = before
		}
	}
	sendLog(w, st, first, o.Follow)
	return nil
}

// sendLog answers with a log to its end. An answer that does not get there is cut, so that it is not taken for the whole.
func sendLog(w http.ResponseWriter, log runtime.LogStream, first *runtime.LogEntry, follow bool) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	if follow {
		flush.Flush()
	}
	enc := json.NewEncoder(w)
	for {
		var e runtime.LogEntry
		var err error
		if first != nil {
			e, first = *first, nil
		} else if e, err = log.Next(); err == io.EOF {
			return
		} else if err != nil {
			flush.Flush() // what there is
			panic(http.ErrAbortHandler)
		}
		if enc.Encode(e) != nil {
			return // the reader has gone
		}
		if follow {
			flush.Flush()
		}
	}
}

// serveExec runs a command over an upgraded connection; see package execstream.
func (q requests) serveExec(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	query := r.URL.Query()
	driver, handle, err := q.find(r.Context(), id, query.Get("container"), nil)
	if err != nil {
		return err
	}
	e, ok := driver.(runtime.Execer)
	if !ok {
		return skerry.Errorf(skerry.CodeUnsupported, "runtime %s cannot run commands inside an instance", driver.Name())
	}
	if len(query["command"]) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "a command is missing")
	}
	if err := q.mayBe(r.Context(), id, driver.Name(), query.Get("user")); err != nil {
		return err
	}
	conn, buf, err := execstream.Accept(w, r, execstream.ProtoExec)
	if err != nil {
		return nil // it was answered
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(q.lifetime())
	defer cancel()
	ec := execstream.New(execstream.Joined{Conn: conn, R: buf})
	spec := runtime.ExecSpec{Args: query["command"], User: query.Get("user"), TTY: query.Get("tty") == "true",
		Stdout: ec.Writer(execstream.Stdout), Stderr: ec.Writer(execstream.Stderr)}
	spec.Env = append(spec.Env, query["env"]...)
	in, feed := io.Pipe()
	defer in.Close()
	resize := make(chan runtime.WinSize, 4)
	spec.Resize = resize
	if query.Get("stdin") == "true" {
		spec.Stdin = in
	}
	go readExec(ec, feed, resize, cancel)
	go ec.CallBack(ctx, execstream.CallEvery, cancel)
	code, err := e.Exec(ctx, handle, spec)
	res := execstream.Result{Code: code}
	if err != nil {
		res.Code, res.Error = 126, err.Error()
	}
	ec.WriteJSON(execstream.Exit, res)
	return nil
}

// mayBe refuses that a command runs as somebody of the host, where an instance of its organisation would not.
func (q requests) mayBe(ctx context.Context, id skerry.InstanceID, driver, user string) error {
	if user == "" || driver != spec.RuntimeNative {
		return nil
	}
	var a spec.Assignment
	if err := q.Role.View(ctx, func(c loop.Core) { a, _, _, _ = c.(*core.Core).Assignment(id, spec.MainContainer) }); err != nil {
		return err
	}
	if !bounded(&a) {
		return nil
	}
	return skerry.Errorf(skerry.CodeForbidden, "user %s would be a user of the host, because %s is a process of the host; that needs the security level privileged, and organisation %s has %s", user, id, a.Org, a.Level).
		WithHint("omit the user; the operator of the site grants the level with \"levels: {%s: privileged}\" in the site's admission policy",
			a.Org)
}

// readExec hands on what the user types until the connection ends, which ends the command.
func readExec(ec *execstream.Conn, feed *io.PipeWriter, resize chan<- runtime.WinSize, cancel context.CancelFunc) {
	defer cancel()
	defer feed.Close()
	for {
		t, p, err := ec.Read()
		if err != nil {
			return
		}
		switch t {
		case execstream.Stdin:
			if _, err := feed.Write(p); err != nil {
				feed.CloseWithError(err) // the command no longer reads; go on for resizes and the end
			}
		case execstream.StdinEOF:
			feed.Close()
		case execstream.Resize:
			var size execstream.Size
			if json.Unmarshal(p, &size) == nil {
				select {
				case resize <- runtime.WinSize{Rows: size.Rows, Cols: size.Cols}:
				default: // a newer size will come
				}
			}
		}
	}
}

// lifetime ends with this life of the server.
func (s *Server) lifetime() context.Context {
	if l := s.work.Load(); l != nil {
		return l.Ctx
	}
	return context.Background()
}

// serveForward joins an upgraded connection to a port of the instance.
func (q requests) serveForward(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	port, err := strconv.Atoi(r.URL.Query().Get("port"))
	if err != nil || port < 1 || port > 65535 {
		return skerry.Errorf(skerry.CodeInvalid, "port %q is not a port", r.URL.Query().Get("port"))
	}
	to, err := q.dialInstance(r.Context(), id, port)
	if _, ok := errors.AsType[*skerry.Error](err); ok {
		return err
	}
	if err != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "port %d of %s does not answer: %v", port, id,
			err).WithHint("does the service listen on it, on all addresses?")
	}
	defer to.Close()
	conn, buf, err := execstream.Accept(w, r, execstream.ProtoForward)
	if err != nil {
		return nil
	}
	defer conn.Close()
	stop := context.AfterFunc(q.lifetime(), func() { conn.Close(); to.Close() })
	defer stop()
	done := make(chan struct{}, 2)
	go func() {
		io.Copy(to, buf)
		if t, ok := to.(*net.TCPConn); ok {
			t.CloseWrite()
		}
		done <- struct{}{}
	}()
	go func() {
		io.Copy(conn, to)
		conn.Close() // there is no half-close on a stream
		done <- struct{}{}
	}()
	<-done
	<-done
	return nil
}

func (q requests) serveStats(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	all, err := q.Stats(r.Context())
	if err != nil {
		return err
	}
	out := []InstanceStats{}
	for _, x := range all {
		if x.Instance == id {
			out = append(out, x)
		}
	}
	if len(out) == 0 {
		return fmt.Errorf("instance %s: %w", id, skerry.Errorf(skerry.CodeNotFound, "no container of it runs here"))
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(out)
}
