package tunnel

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Files in the datapath's directory.
const (
	socketFile = "datapath.sock"
	lockFile   = "datapath.lock" // held by the datapath that runs; holds its process ID
	logFile    = "datapath.log"
)

// Main is `skerry datapath`: it serves an Engine on a unix socket in a directory until it is told to stop. The agent starts
// it (Start); it has no use for people. It returns the exit status.
func Main(version string, args []string) int {
	flags := flag.NewFlagSet("datapath", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory of the control socket")
	wait := flags.Bool("wait", false, "begin when standard input ends")
	tied := flags.Bool("tied", false, "end when standard input does")
	noAES := flags.Bool("no-aes", false, "use ChaCha20-Poly1305 whatever the machine can do")
	debug := flags.Bool("debug", false, "log every step")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	if *dir == "" || flags.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "error: the datapath is started by the worker, with --dir")
		return 2
	}
	level := slog.LevelInfo
	if *debug {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	if *wait { // for a word or the end, until the agent has moved this process into its cgroup
		var b [1]byte
		_, _ = os.Stdin.Read(b[:])
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if *tied {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	if err := serveIn(ctx, *dir, version, Options{Log: log, NoAES: *noAES, Timing: envTiming()}); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

// short opens a directory, and gives the path of a socket in it by way of the descriptor: the kernel takes at most 107 bytes
// for the path of a socket, and data directories may be longer.
func short(dir, file string) (*os.File, string, error) {
	at, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", err
	}
	return at, fmt.Sprintf("/proc/self/fd/%d/%s", at.Fd(), file), nil
}

// timingVar lets tests hurry: it holds a Timing in JSON.
const timingVar = "SKERRY_DATAPATH_TIMING"

func envTiming() (t Timing) {
	_ = json.Unmarshal([]byte(os.Getenv(timingVar)), &t)
	return t
}

// lockFor is how long a datapath waits for the one before it to end.
const lockFor = 10 * time.Second

func serveIn(ctx context.Context, dir, version string, opt Options) error {
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	for end := time.Now().Add(lockFor); ; time.Sleep(10 * time.Millisecond) {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("another datapath runs in %s: %w", dir, err)
		}
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return err
	}
	held, err := listenIn(dir, "unixpacket", keepFile)
	if err != nil {
		return err
	}
	defer held.Close()
	ln, err := listenIn(dir, "unix", socketFile) // the last, because who finds it finds the other
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { ln.Close() })
	// More than there are processors: with one to spare, the scheduler leaves a thread that waits in the kernel in peace.
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	e := New(opt)
	defer e.Close()
	c := &controller{e: e, hello: Hello{ControlVersion, version, os.Getpid()}, stop: cancel, open: map[*conn]bool{}}
	slim()
	k := &keeper{rest: keepFor}
	var keeping sync.WaitGroup
	keeping.Go(func() { k.serve(ctx, held.(*net.UnixListener)) })
	c.serve(ctx, ln)
	cancel()
	keeping.Wait()
	return nil
}
