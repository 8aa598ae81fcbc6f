package containerd

import (
	"context"
	"strconv"
	"time"
)

// The names of descriptions in the daemon's messages.
const (
	specURL    = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
	processURL = "types.containerd.io/opencontainers/runtime-spec/1/Process"
	optionsURL = "containerd.runc.v1.Options"
)

const (
	tasks      = "tasks.v1.Tasks"
	containers = "containers.v1.Containers"
	snapshots  = "snapshots.v1.Snapshots"
	leases     = "leases.v1.Leases"
)

// Version tells the daemon's version.
func (c *Client) Version(ctx context.Context) (string, error) {
	b, err := c.call(ctx, "version.v1.Version", "Version", nil)
	if err != nil {
		return "", err
	}
	return parseText(b, 1)
}

// NewContainer is a container to make. Binary is the OCI runtime that a shim of the runc family is to call; empty: its own choice.
type NewContainer struct {
	ID, Shim, Binary string
	Labels           map[string]string
	Spec             []byte // config.json
	Snapshotter      string // that has a snapshot of the container's ID; empty: none
}

// CreateContainer keeps a description at the daemon; nothing runs yet.
func (c *Client) CreateContainer(ctx context.Context, n NewContainer) error {
	m := message{}.text(1, n.ID)
	for k, v := range n.Labels {
		m = m.in(2, message{}.text(1, k).text(2, v))
	}
	runtime := message{}.text(1, n.Shim)
	if n.Binary != "" {
		runtime = runtime.in(2, anything(optionsURL, message{}.text(6, n.Binary)))
	}
	m = m.in(4, runtime).in(5, anything(specURL, n.Spec))
	if n.Snapshotter != "" {
		m = m.text(6, n.Snapshotter).text(7, n.ID)
	}
	_, err := c.call(ctx, containers, "Create", message{}.in(1, m))
	return err
}

// Containers lists those with a label.
func (c *Client) Containers(ctx context.Context, label, value string) ([]Container, error) {
	b, err := c.call(ctx, containers, "List", message{}.text(1, `labels.`+strconv.Quote(label)+`==`+strconv.Quote(value)))
	if err != nil {
		return nil, err
	}
	return parseContainers(b)
}

// DeleteContainer forgets a description.
func (c *Client) DeleteContainer(ctx context.Context, id string) error {
	_, err := c.call(ctx, containers, "Delete", message{}.text(1, id))
	return err
}

// DeleteNamespace forgets the namespace when nothing is in it.
func (c *Client) DeleteNamespace(ctx context.Context) error {
	_, err := c.call(ctx, "namespaces.v1.Namespaces", "Delete", message{}.text(1, Namespace))
	return err
}

// streams are the pipes of a process; empty: none.
type streams struct {
	in, out, err string
	tty          bool
}

// Mount is one for a container's root, in the daemon's words.
type Mount struct {
	Type, Source string
	Options      []string
}

// CreateTask has a shim make the container's first process, which waits. root is mounted as its root, one over another.
func (c *Client) CreateTask(ctx context.Context, id string, root []Mount, s streams) (pid int, err error) {
	m := message{}.text(1, id)
	for _, r := range root {
		mount := message{}.text(1, r.Type).text(2, r.Source)
		for _, o := range r.Options {
			mount = mount.text(4, o)
		}
		m = m.in(3, mount)
	}
	b, err := c.call(ctx, tasks, "Create", m.text(4, s.in).text(5, s.out).text(6, s.err).flag(7, s.tty))
	if err != nil {
		return 0, err
	}
	n, err := parseNumber(b, 2)
	return int(uint32(n)), err
}

// of names a process of a task: that of an exec, or the first.
func of(id, exec string) message { return message{}.text(1, id).text(2, exec) }

// Start lets a process go on that was created.
func (c *Client) Start(ctx context.Context, id, exec string) error {
	_, err := c.call(ctx, tasks, "Start", of(id, exec))
	return err
}

// Kill sends a signal; with all, to every process of the task.
func (c *Client) Kill(ctx context.Context, id, exec string, signal int, all bool) error {
	_, err := c.call(ctx, tasks, "Kill", of(id, exec).number(3, uint64(signal)).flag(4, all))
	return err
}

// Wait returns when a process has ended, with its exit status, and when that was.
func (c *Client) Wait(ctx context.Context, id, exec string) (int, time.Time, error) {
	b, err := c.call(ctx, tasks, "Wait", of(id, exec))
	if err != nil {
		return 0, time.Time{}, err
	}
	return parseWait(b)
}

// Get looks at the first process of a task.
func (c *Client) Get(ctx context.Context, id string) (Process, error) {
	b, err := c.call(ctx, tasks, "Get", of(id, ""))
	if err != nil {
		return Process{}, err
	}
	return parseProcess(b)
}

// DeleteTask ends the shim of a task that has stopped.
func (c *Client) DeleteTask(ctx context.Context, id string) error {
	_, err := c.call(ctx, tasks, "Delete", of(id, ""))
	return err
}

// DeleteProcess forgets an exec that has ended.
func (c *Client) DeleteProcess(ctx context.Context, id, exec string) error {
	_, err := c.call(ctx, tasks, "DeleteProcess", of(id, exec))
	return err
}

// Exec makes a process inside a task, which Start starts. spec is its description in JSON.
func (c *Client) Exec(ctx context.Context, id, exec string, spec []byte, s streams) error {
	m := message{}.text(1, id).text(2, s.in).text(3, s.out).text(4, s.err).flag(5, s.tty).in(6, anything(processURL, spec)).text(7, exec)
	_, err := c.call(ctx, tasks, "Exec", m)
	return err
}

// ResizeTerminal sets the size of an exec's terminal.
func (c *Client) ResizeTerminal(ctx context.Context, id, exec string, rows, cols uint16) error {
	_, err := c.call(ctx, tasks, "ResizePty", of(id, exec).number(3, uint64(cols)).number(4, uint64(rows)))
	return err
}

// CloseInput has an exec see the end of its input.
func (c *Client) CloseInput(ctx context.Context, id, exec string) error {
	_, err := c.call(ctx, tasks, "CloseIO", of(id, exec).flag(3, true))
	return err
}

// Pause holds a task still, Resume ends that.
func (c *Client) Pause(ctx context.Context, id string) error {
	_, err := c.call(ctx, tasks, "Pause", of(id, ""))
	return err
}

// Resume lets a task go on.
func (c *Client) Resume(ctx context.Context, id string) error {
	_, err := c.call(ctx, tasks, "Resume", of(id, ""))
	return err
}

// PrepareSnapshot makes a snapshot that can be written to, of another one, or an empty one, and gives its mounts. The daemon does not
// collect it.
func (c *Client) PrepareSnapshot(ctx context.Context, snapshotter, key, parent string) ([]Mount, error) {
	b, err := c.call(ctx, snapshots, "Prepare", message{}.text(1, snapshotter).text(2, key).text(3, parent).
		in(4, message{}.text(1, "containerd.io/gc.root").text(2, time.Now().UTC().Format(time.RFC3339))))
	if err != nil {
		return nil, err
	}
	return parseMounts(b)
}

// SnapshotMounts gives the mounts of a snapshot that can be written to.
func (c *Client) SnapshotMounts(ctx context.Context, snapshotter, key string) ([]Mount, error) {
	b, err := c.call(ctx, snapshots, "Mounts", message{}.text(1, snapshotter).text(2, key))
	if err != nil {
		return nil, err
	}
	return parseMounts(b)
}

// SnapshotUsage tells what a snapshot takes beside those that it was made of.
func (c *Client) SnapshotUsage(ctx context.Context, snapshotter, key string) (bytes, inodes int64, err error) {
	b, err := c.call(ctx, snapshots, "Usage", message{}.text(1, snapshotter).text(2, key))
	if err != nil {
		return 0, 0, err
	}
	size, err := parseNumber(b, 1)
	if err != nil {
		return 0, 0, err
	}
	files, err := parseNumber(b, 2)
	return int64(size), int64(files), err
}

// CommitSnapshot makes one that others can be made of, under a name, of one that was written to.
func (c *Client) CommitSnapshot(ctx context.Context, snapshotter, name, key string) error {
	_, err := c.call(ctx, snapshots, "Commit", message{}.text(1, snapshotter).text(2, name).text(3, key))
	return err
}

// RemoveSnapshot forgets a snapshot. One that is not there is no error.
func (c *Client) RemoveSnapshot(ctx context.Context, snapshotter, key string) error {
	_, err := c.call(ctx, snapshots, "Remove", message{}.text(1, snapshotter).text(2, key))
	if NotFound(err) {
		return nil
	}
	return err
}

// Collect has the daemon delete now what nobody refers to any more, which it puts off for a hundred changes otherwise. It does so when a
// lease ends, for which one of a name is made.
func (c *Client) Collect(ctx context.Context, name string) error {
	if _, err := c.call(ctx, leases, "Create", message{}.text(1, name)); err != nil && !has(err, CodeAlreadyExists) {
		return err
	}
	_, err := c.call(ctx, leases, "Delete", message{}.text(1, name).flag(2, true))
	return err
}
