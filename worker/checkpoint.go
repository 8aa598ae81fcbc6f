//go:build linux

package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"filippo.io/age"

	"skerry.dev/skerry"
	"skerry.dev/skerry/internal/printed"
	"skerry.dev/skerry/internal/tier"
	"skerry.dev/skerry/runtime"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/core"
)

const (
	// checkpointDir is where an instance's state lies, below its directory, volumesDir what its empty volumes hold.
	checkpointDir = "checkpoint"
	volumesDir    = "volumes"
	dumpTime      = 5 * time.Minute
	// leaveWait is how long a worker asks for a state that may not leave yet: its worker has to hear that it may.
	leaveWait  = 2 * time.Minute
	leaveAgain = 100 * time.Millisecond
	// maxSaid is how much is kept of what tar says.
	maxSaid = 4 << 10
)

// checkpoints moves instances with their states between workers.
type checkpoints struct{ *Server }

// recipient makes the key for which an instance's state is wanted.
func (cp checkpoints) recipient(a *spec.Assignment) (string, error) {
	if a.From == nil {
		return "", nil
	}
	k, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	cp.activity(a.ID, func(x *activity) { x.key = k })
	return k.Recipient().String(), nil
}

// checkpointer is a driver that can do that here.
func checkpointer(ctx context.Context, d runtime.Driver) (runtime.Checkpointer, error) {
	c, ok := d.(runtime.Checkpointer)
	if !ok {
		return nil, &runtime.Unsupported{Ability: runtime.AbilityCheckpoint, Driver: d.Name(),
			Reason: "it has no way to write what runs into files"}
	}
	return c, c.CanCheckpoint(ctx)
}

// serveCheckpoint writes the state of an instance, ends it, and answers with all that another worker needs to go on,
// for that worker alone to read.
func (q requests) serveCheckpoint(w http.ResponseWriter, r *http.Request, id skerry.InstanceID) error {
	m := core.LeaveLocal{ID: id}
	if err := json.Unmarshal([]byte(r.URL.Query().Get("for")), &m.For); err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "it is not said for which copy: %v", err)
	}
	v, err := q.Role.Do(r.Context(), m)
	if err != nil {
		return err
	}
	answer := v.(core.LeaveAnswer)
	// From here on what happens to the request is not what happens to the instance.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), dumpTime)
	defer cancel()
	dir := filepath.Join(q.instanceDir(id), checkpointDir)
	to, err := age.ParseX25519Recipient(answer.Recipient)
	if err == nil {
		err = checkpoints(q).dump(ctx, answer.Handle, dir)
	}
	left := core.Left{ID: id}
	if err != nil {
		left.Err = err.Error()
	}
	if _, e := q.Role.Do(ctx, left); e != nil {
		return e
	}
	if err != nil {
		return skerry.Errorf(skerry.CodeUnsupported, "it stays where it is: %v", err)
	}
	w.Header().Set("Content-Type", "application/age")
	sealed, err := age.Encrypt(w, to)
	if err != nil {
		return err
	}
	args := []string{"-C", q.instanceDir(id), "--xattrs", "--xattrs-include=*", "--numeric-owner", "--sparse", "-cf", "-"}
	cmd := exec.CommandContext(ctx, "tar", append(args, checkpointDirs(q.instanceDir(id))...)...)
	why := printed.Head{Max: maxSaid}
	cmd.Stdout, cmd.Stderr = sealed, &why
	if err = cmd.Run(); err == nil {
		err = sealed.Close()
	}
	if err != nil {
		q.opt.Log.Warn("send the state of an instance", "instance", string(id), "err", err, "output", why.String())
		panic(http.ErrAbortHandler) // a cut answer is no whole one: the seal is missing as well
	}
	q.Post(core.Sent{ID: id})
	return nil
}

// checkpointDirs are the directories of an instance that go along.
func checkpointDirs(dir string) []string {
	if _, err := os.Lstat(filepath.Join(dir, volumesDir)); err != nil {
		return []string{checkpointDir}
	}
	return []string{checkpointDir, volumesDir}
}

func (cp checkpoints) dump(ctx context.Context, handle json.RawMessage, dir string) error {
	d, h, err := cp.runtimes.of(handle)
	if err != nil {
		return err
	}
	c, err := checkpointer(ctx, d)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	return c.Checkpoint(ctx, h, dir)
}

// goOn starts a container from a state: the one that another worker has, or the one that was written here.
func (cp checkpoints) goOn(ctx context.Context, a core.StartContainer, spec runtime.Spec, d runtime.Driver) (runtime.Handle, error) {
	c, err := checkpointer(ctx, d)
	if err != nil {
		return runtime.Handle{}, err
	}
	dir := filepath.Join(cp.instanceDir(a.A.ID), checkpointDir)
	if !a.Resume {
		if err := cp.fetch(ctx, &a.A); err != nil {
			return runtime.Handle{}, fmt.Errorf("its state: %w", err)
		}
	}
	h, err := c.Restore(ctx, spec, dir)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	return h, err
}

// fetch brings the state of another copy of an instance here, by way of the cluster.
func (cp checkpoints) fetch(ctx context.Context, assigned *spec.Assignment) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var key *age.X25519Identity
	cp.activity(assigned.ID, func(x *activity) { key, x.key, x.prepare = x.key, nil, cancel })
	up := cp.up.Load()
	if key == nil || up == nil {
		return errors.New("the key for it is lost")
	}
	token, err := json.Marshal(assigned.Fence)
	if err != nil {
		return err
	}
	where := "http://cluster/checkpoint/" + url.PathEscape(string(assigned.ID)) + "?for=" + url.QueryEscape(string(token))
	for end := time.Now().Add(leaveWait); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
		if err != nil {
			return err
		}
		res, err := up.Transport.RoundTrip(req)
		if err == nil && res.StatusCode == http.StatusOK {
			defer res.Body.Close()
			free, _ := freeAt(cp.opt.Dir)
			return unpack(ctx, res.Body, key, cp.instanceDir(assigned.ID), free-cp.opt.MinFree)
		}
		again := err == nil && res.StatusCode == http.StatusConflict
		if err == nil {
			err = tier.ReadProblem(res)
			res.Body.Close()
		}
		if !again || time.Now().After(end) {
			return err
		}
		select {
		case <-time.After(leaveAgain):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unpack reads what serveCheckpoint has sent, which may take so much room. It counts as whole only with its seal. What
// is in there is another worker's word: nothing comes to lie beside the directories that go along, and those that are
// mounted into the instance are no links.
func unpack(ctx context.Context, from io.Reader, key *age.X25519Identity, dir string, room skerry.Bytes) error {
	plain, err := age.Decrypt(from, key)
	if err != nil {
		return err
	}
	args := []string{"-C", dir, "--xattrs", "--xattrs-include=*", "--numeric-owner", "--same-permissions", "-xf", "-"}
	cmd := exec.CommandContext(ctx, "tar", append(args, checkpointDirs(dir)...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	why := printed.Head{Max: maxSaid} // an archive may have something wrong with each of its files
	cmd.Stderr = &why
	if err := cmd.Start(); err != nil {
		return err
	}
	n, err := io.Copy(in, io.LimitReader(plain, int64(max(room, 0))+1))
	if err == nil && n > int64(room) {
		err = fmt.Errorf("there is no room for it: it is more than %s", max(room, 0))
	}
	if err == nil {
		err = in.Close()
	} else {
		_ = cmd.Process.Kill()
	}
	if e := cmd.Wait(); err == nil && e != nil {
		err = fmt.Errorf("tar: %w: %s", e, bytes.TrimSpace(why.Bytes()))
	}
	if err != nil {
		return err
	}
	for _, name := range checkpointDirs(dir) {
		if st, err := os.Lstat(filepath.Join(dir, name)); err != nil || !st.IsDir() {
			return fmt.Errorf("%s is no directory: %w", name, cmp.Or(err, fs.ErrInvalid))
		}
	}
	volumes, err := os.ReadDir(filepath.Join(dir, volumesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, v := range volumes {
		if !v.IsDir() {
			err = fmt.Errorf("volume %s is no directory: %w", v.Name(), fs.ErrInvalid)
		}
	}
	return err
}
