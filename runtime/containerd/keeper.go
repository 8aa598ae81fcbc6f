//go:build linux

package containerd

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skerry.dev/skerry/runtime/internal/monitor"
)

// job is what a keeper is told, in a file of the bundle.
type job struct {
	Socket, ID string
	LogMax     int64
	TTY        bool
	Log        string // directory of the log
	Exit       string // file for the exit status
}

const jobFile = "keeper.json"

// The pipes between the shim and the keeper.
const (
	pipeOut = "stdout"
	pipeErr = "stderr"
)

// pipes makes the pipes of a task. A terminal has one.
func pipes(t *monitor.Task, tty bool) (streams, error) {
	s := streams{out: t.Path(pipeOut), tty: tty}
	if !tty {
		s.err = t.Path(pipeErr)
	}
	for _, p := range []string{s.out, s.err} {
		if p == "" {
			continue
		}
		if err := unix.Mkfifo(p, 0o600); err != nil {
			return s, fmt.Errorf("make pipe %s: %w", p, err)
		}
	}
	return s, nil
}

// keeper is a keeper that has been started and waits for word that there is a task.
type keeper struct {
	in  *os.File // closed without a word: there will be none
	out *bufio.Reader
	r   *os.File
}

// startKeeper starts the process that reads what a task prints and waits for its end. It is not of the agent's service,
// so that it outlives the agent.
func (d *Driver) startKeeper(task *monitor.Task, j job) (*keeper, error) {
	j.Log, j.Exit = task.Path("log"), task.ExitFile()
	data, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(task.Path(jobFile), data, 0o600); err != nil {
		return nil, err
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inR.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		inW.Close()
		return nil, err
	}
	defer outW.Close()
	k := &keeper{in: inW, out: bufio.NewReader(outR), r: outR}
	cmd := exec.Command(d.opts.Keeper[0], append(d.opts.Keeper[1:len(d.opts.Keeper):len(d.opts.Keeper)], "-b", task.Path())...)
	cmd.Dir, cmd.Env = "/", []string{"GOMAXPROCS=1"}
	cmd.Stdin, cmd.Stdout = inR, outW
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.Tasks.Tree().Group(path.Join(d.Options.CgroupParent, "conmon")).Start(cmd); err != nil {
		k.close()
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	task.Update(func(r *monitor.Record) { r.Supervisor = monitor.Identify(cmd.Process.Pid) })
	_ = cmd.Process.Release() // whoever waits for the supervisor's end collects it
	if err = task.Save(); err == nil {
		err = k.hear() // it has opened the pipes
	}
	if err != nil {
		k.close()
		return nil, err
	}
	return k, nil
}

// hear waits for the keeper's next word.
func (k *keeper) hear() error {
	line, err := k.out.ReadString('\n')
	if line = strings.TrimSpace(line); line == "ok" {
		return nil
	}
	if line == "" {
		return fmt.Errorf("the keeper ended without a word: %w", err)
	}
	return errors.New(line)
}

// goOn tells the keeper that there is a task, with its first process, and returns when it waits for it.
func (k *keeper) goOn(ctx context.Context, pid int) error {
	stop := context.AfterFunc(ctx, func() { _ = k.r.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintln(k.in, pid); err != nil {
		return fmt.Errorf("the keeper has ended: %w", err)
	}
	if err := k.hear(); err != nil {
		return errors.Join(ctx.Err(), err)
	}
	return nil
}

func (k *keeper) close() {
	k.in.Close()
	k.r.Close()
}

// KeepMain is the hidden command of two uses. "-k TOKEN" is what a self-test runs in a container: it prints which kernel it is on.
//
// "-b BUNDLE" is a task's keeper: it reads the task's pipes into its log, in the form that conmon writes, and waits at the
// daemon for its end. It returns the exit status.
//
// On standard input it is told the task's first process once there is one; on standard output it says "ok" when it has
// opened the pipes, and again when it waits.
func KeepMain(args []string) int {
	if len(args) == 2 && args[0] == kernelFlag {
		return tellKernel()
	}
	if len(args) != 2 || args[0] != "-b" {
		fmt.Fprintln(os.Stderr, "this command is not for people; see runtime/containerd")
		return 2
	}
	if err := keep(args[1]); err != nil {
		fmt.Println(err) // nobody may be there to hear it
		return 1
	}
	return 0
}

func keep(bundle string) error {
	var j job
	data, err := os.ReadFile(filepath.Join(bundle, jobFile))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	log, err := openLog(j.Log, j.LogMax)
	if err != nil {
		return err
	}
	names := []string{pipeOut, pipeErr}
	if j.TTY {
		names = names[:1]
	}
	files := make([]*os.File, len(names))
	for i, name := range names { // without waiting for who writes
		if files[i], err = os.OpenFile(filepath.Join(bundle, name), os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
			return err
		}
	}
	fmt.Println("ok")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return nil // there is no task, and will be none
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return err
	}
	// The shim has the pipes open by now. Before, they would have read as ended.
	done := make(chan struct{}, len(files))
	for i, f := range files {
		go func() {
			log.copy(names[i], f)
			done <- struct{}{}
		}()
	}
	init := monitor.Identify(pid)
	fmt.Println("ok")
	for _, f := range []*os.File{os.Stdin, os.Stdout} {
		f.Close()
	}
	code, at, err := await(j, init)
	if err != nil {
		return nil // nobody knows how it ended: without a status it counts as lost
	}
	// What it left behind may hold the pipes open; what that prints is not waited for longer than this.
	limit := time.After(2 * time.Second)
	for range files {
		select {
		case <-done:
		case <-limit:
		}
	}
	log.close()
	return writeExit(j.Exit, code, at)
}

// How often a daemon is asked again that is not there, and for how long once the task's process has ended.
const (
	retryEvery = time.Second
	retryTries = 30
)

// await gives how a task ended. A daemon that is away, as during its upgrade, is waited for: its shims run on.
func await(j job, init monitor.Process) (code int, at time.Time, err error) {
	c := NewClient(j.Socket)
	for tries := 0; tries < retryTries; {
		if code, at, err = c.Wait(context.Background(), j.ID, ""); err == nil {
			return code, at, nil
		}
		p, err2 := c.Get(context.Background(), j.ID)
		switch {
		case err2 == nil && p.Status == StatusStopped:
			return p.Code, p.At, nil
		case NotFound(err2):
			return 0, at, err2 // its shim was killed
		case !init.Alive():
			tries++
		}
		time.Sleep(retryEvery)
	}
	return 0, at, err
}

// writeExit leaves an exit status as conmon does: the number, in a file as old as the end.
func writeExit(file string, code int, at time.Time) error {
	tmp := file + ".tmp"
	if err := os.WriteFile(tmp, []byte(strconv.Itoa(code)), 0o600); err != nil {
		return err
	}
	if err := os.Chtimes(tmp, at, at); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}
