package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/thread"
	"skerry.dev/skerry/wire"
)

// Ports of the roles in every lab.
const (
	rootLink    = "7443"
	clusterLink = "7444"
	rootAPI     = "7480"
	clusterAPI  = "7481"
	workerHTTP  = "127.0.0.1:7482"
)

// start starts a process in a host, in a session of its own, with its output in a file, and writes down who it is.
func (l *Lab) start(host string, argv []string, logFile string) (process, error) {
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return process{}, err
	}
	defer out.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = l.env(host)
	cmd.Dir = "/"
	var p process
	err = thread.Do(func() error {
		if err := l.spawn(host, "agent", cmd, &syscall.SysProcAttr{Setsid: true}); err != nil {
			return err
		}
		// Waited for, so that it does not stay a zombie while this process lives; but only once it was identified, for until then
		// one that ends at once must not go.
		defer func() { go cmd.Wait() }()
		var err error
		if p, err = identify(cmd.Process.Pid); err != nil {
			return err
		}
		return writeJSON(l.path("agents", host+".json"), p)
	})
	if err != nil {
		return p, fmt.Errorf("start %s in %s: %w", filepath.Base(argv[0]), host, err)
	}
	return p, nil
}

// spawn starts a command from the calling thread, in the namespaces and in a cgroup of a host.
func (l *Lab) spawn(host, group string, cmd *exec.Cmd, attr *syscall.SysProcAttr) error {
	fd, err := joinCgroup(filepath.Join(l.cgroupOf(host), group))
	if fd >= 0 {
		defer unix.Close(fd)
		attr.UseCgroupFD, attr.CgroupFD = true, fd
	}
	if err != nil {
		return err
	}
	if err := l.enter(host); err != nil {
		return err
	}
	cmd.SysProcAttr = attr
	return cmd.Start()
}

// In runs f on a thread within a host, so that sockets and files that it opens are the host's. They stay so when used from
// elsewhere.
func (l *Lab) In(host string, f func() error) error {
	return thread.Do(func() error {
		if err := l.enter(host); err != nil {
			return err
		}
		return f()
	})
}

// env is the environment of what runs in a host: the caller's, with settings of Skerry's own.
func (l *Lab) env(host string) []string {
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		return strings.HasPrefix(s, "SKERRY_") ||
			strings.HasPrefix(s, "NOTIFY_SOCKET=")
	})
	path := filepath.Dir(l.Binary) + ":" + os.Getenv("PATH")
	env = slices.DeleteFunc(env, func(s string) bool { return strings.HasPrefix(s, "PATH=") })
	return append(env, "PATH="+path, "SKERRY_CONFIG="+filepath.Join(l.Data, host+".config.yaml"),
		"SKERRY_IMAGES="+filepath.Join(l.Data, host+".images"), "LAB="+l.Topology.Name, "LAB_HOST="+host)
}

// makeHost makes a host that is off into one that is on, without starting its role.
func (l *Lab) makeHost(h *Host) error {
	if err := os.MkdirAll(l.hostDir(h.Name), 0o700); err != nil {
		return err
	}
	if err := l.makeSpaces(h.Name, forwarding); err != nil {
		return err
	}
	if h.Limits.CPU > 0 {
		if err := limitCPU(l.cgroupOf(h.Name), h.Limits.CPU); err != nil {
			return fmt.Errorf("limits of %s: %w", h.Name, err)
		}
	}
	if h.Limits.Memory > 0 {
		if err := limitMemory(l.cgroupOf(h.Name), h.Limits.Memory); err != nil {
			return fmt.Errorf("limits of %s: %w", h.Name, err)
		}
	}
	return l.plug(h)
}

// command gives the command line of a host's role.
func (l *Lab) command(host *Host, token string) ([]string, error) {
	dir := l.hostDir(host.Name)
	argv := []string{l.Binary, string(host.Role), "--data", dir}
	listen := func(port string) string { return net.JoinHostPort(host.Address, port) }
	parent := func(name, port string) string {
		return net.JoinHostPort(l.Topology.Host(name).Address, port)
	}
	switch host.Role {
	case RoleRoot:
		argv = append(argv, "--name", host.Name, "--link", listen(rootLink), "--api", listen(rootAPI), "--api-name", host.Name)
	case RoleCluster:
		file := l.path("admission", host.Name+".yaml")
		admission := any(host.Admission)
		if host.Admission == nil {
			admission = map[string]any{"trusted": []string{"default"}}
		}
		if err := writeJSON(file, admission); err != nil { // JSON is YAML
			return nil, err
		}
		argv = append(argv, "--name", host.Name, "--link", listen(clusterLink), "--api", listen(clusterAPI), "--api-name", host.Name,
			"--admission", file)
		if host.Root == "none" {
			argv = append(argv, "--standalone")
		} else {
			argv = append(argv, "--root", parent(host.Root, rootLink))
		}
	case RoleWorker:
		run := l.path("run", host.Name)
		if err := os.MkdirAll(run, 0o700); err != nil {
			return nil, err
		}
		argv = append(argv, "--name", host.Name, "--address", host.Address, "--run-dir", run, "--cgroup-parent",
			strings.TrimPrefix(filepath.Join(l.cgroupOf(host.Name), "work"), "/"),
			"--cluster", parent(host.Cluster, clusterLink), "--http", workerHTTP)
		if host.Resources.CPU > 0 {
			argv = append(argv, "--cpu", host.Resources.CPU.String())
		}
		if host.Resources.Memory > 0 {
			argv = append(argv, "--memory", fmt.Sprint(int64(host.Resources.Memory)))
		}
		if host.Resources.Storage > 0 {
			argv = append(argv, "--storage", fmt.Sprint(int64(host.Resources.Storage)))
		}
		if host.Area != "" {
			argv = append(argv, "--area", host.Area)
		}
		if host.Location != nil {
			argv = append(argv, fmt.Sprintf("--location=%g,%g", host.Location.Lat, host.Location.Lon))
		}
		for k, v := range host.Labels {
			argv = append(argv, "--label", k+"="+v)
		}
	}
	if token != "" {
		file := l.path("tokens", host.Name)
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			return nil, err
		}
		argv = append(argv, "--join", "@"+file)
	}
	return append(argv, host.Args...), nil
}

// startRole starts the role of a host that is on. A host that has joined before needs no token.
func (l *Lab) startRole(ctx context.Context, host *Host) error {
	if host.Role == RoleNone || host.Role == RoleNAT {
		return nil
	}
	if p := l.agent(host.Name); p != nil && p.alive() {
		return skerry.Errorf(skerry.CodeConflict, "%s runs already, as process %d", host.Name, p.PID)
	}
	parent := host.Cluster
	if host.Role == RoleCluster {
		parent = host.Root
	}
	token := ""
	if _, err := os.Stat(filepath.Join(l.hostDir(host.Name), "identity")); errors.Is(err, os.ErrNotExist) && parent != "" && parent != "none" {
		if token, err = l.token(ctx, host, parent); err != nil {
			return err
		}
	}
	argv, err := l.command(host, token)
	if err != nil {
		return err
	}
	_, err = l.start(host.Name, argv, l.logFile(host.Name))
	return err
}

// token asks a host's parent for a join token, over the socket in the parent's data directory.
func (l *Lab) token(ctx context.Context, h *Host, parent string) (string, error) {
	var answer struct {
		Token string `json:"token"`
	}
	ask := struct {
		Role wire.Tier `json:"role"`
		Name string    `json:"name"`
	}{wire.Tier(h.Role), h.Name}
	if err := l.local(ctx, parent, http.MethodPost, "/token", ask, &answer); err != nil {
		return "", fmt.Errorf("token for %s from %s: %w", h.Name, parent, err)
	}
	return answer.Token, nil
}

// RoleStatus is what a role says of itself.
type RoleStatus struct {
	Ready  bool   `json:"ready"`
	Why    string `json:"why,omitempty"` // it is not ready
	Parent *struct {
		Connected bool   `json:"connected"`
		Why       string `json:"why,omitempty"`
	} `json:"parent,omitempty"`
	API       string             `json:"api,omitempty"`
	Instances []wire.Observation `json:"instances,omitempty"`
}

// connected reports whether the role does its work and its parent knows.
func (s *RoleStatus) connected() bool {
	return s.Ready && (s.Parent == nil || s.Parent.Connected)
}

// local talks to the role of a host over the socket in its data directory, which the lab's partitions do not touch.
func (l *Lab) local(ctx context.Context, host, method, path string, body, into any) error {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(l.hostDir(host), "control.sock"))
		}}}
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://local"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(text))
	}
	return json.NewDecoder(io.LimitReader(res.Body, 16<<20)).Decode(into)
}

// awaitRole waits until a host's role is ready and connected, or has ended.
func (l *Lab) awaitRole(ctx context.Context, host *Host) error {
	if host.Role == RoleNone || host.Role == RoleNAT {
		return nil
	}
	why := "it does not answer yet"
	for {
		var st RoleStatus
		ask, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := l.local(ask, host.Name, http.MethodGet, "/status", nil, &st)
		cancel()
		switch {
		case err == nil && st.connected():
			return nil
		case err == nil && !st.Ready:
			why = st.Why
		case err == nil:
			why = "not connected to its parent: " + st.Parent.Why
		}
		if p := l.agent(host.Name); p == nil || !p.alive() {
			return fmt.Errorf("%s ended while it was starting:\n%s", host.Name, tail(l.logFile(host.Name)))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %s: %w\n%s", host.Name, why, ctx.Err(), tail(l.logFile(host.Name)))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tail gives the end of a log.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
