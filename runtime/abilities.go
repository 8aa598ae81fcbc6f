package runtime

import (
	"context"
	"io"
	"time"

	"skerry.dev/skerry"
)

// Execer is a driver that runs further processes inside a task. The exit code is that of the process, 128 + n when
// signal n ended it. When ctx ends, the process is killed and the error is that of ctx.
type Execer interface {
	Exec(ctx context.Context, h Handle, spec ExecSpec) (exitCode int, err error)
}

// ExecSpec is a process to run inside a task. Env is added to the task's; empty Dir and User mean the task's. With TTY,
// Stderr is not used, and each value received from Resize is handed to the terminal; the sender owns the channel, and
// nil is fine. Exec does not wait for a Stdin that does not end.
type ExecSpec struct {
	Args   []string
	Env    []string
	Dir    string
	User   string
	TTY    bool
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Resize <-chan WinSize
}

// WinSize is the size of a terminal in characters.
type WinSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Statser is a driver that counts what a task uses.
type Statser interface {
	Stats(ctx context.Context, h Handle) (Stats, error)
}

// Stats is what a task has used since it began. Counters only grow. Network counters are the network's to give.
type Stats struct {
	At time.Time `json:"at"`
	// CPU is the processor time used; Throttled the time a quota withheld, in ThrottledPeriods of Periods.
	CPU              time.Duration `json:"cpu"`
	Throttled        time.Duration `json:"throttled"`
	Periods          uint64        `json:"periods"`
	ThrottledPeriods uint64        `json:"throttledPeriods"`
	// Waiting is the time in which something was ready to run and had no processor, throttling left out where the kernel
	// tells them apart. What threads that have ended waited is not always in it.
	Waiting time.Duration `json:"waiting"`
	// Memory is what is charged now, page cache included; MemoryWorkingSet leaves out cache that the kernel may drop at
	// no cost; MemoryPeak is the most ever; MemoryLimit is 0 for none.
	Memory           skerry.Bytes `json:"memory"`
	MemoryWorkingSet skerry.Bytes `json:"memoryWorkingSet"`
	MemoryPeak       skerry.Bytes `json:"memoryPeak"`
	MemoryLimit      skerry.Bytes `json:"memoryLimit"`
	OOMKills         uint64       `json:"oomKills"`
	// Pids counts processes and threads.
	Pids      int64        `json:"pids"`
	DiskRead  skerry.Bytes `json:"diskRead"`
	DiskWrite skerry.Bytes `json:"diskWrite"`
}

// Logger is a driver that keeps what a task prints.
type Logger interface {
	OpenLog(ctx context.Context, h Handle, opts LogOptions) (LogStream, error)
}

// LogOptions select log entries. The zero value means everything kept so far, of which the first may be the end of a line.
type LogOptions struct {
	// Since leaves out entries before it.
	Since time.Time
	// Tail is the number of entries before the end to begin with; 0 means all, a negative number none.
	Tail int
	// Follow waits for further entries until the task has exited and all was read.
	Follow bool
	// Previous reads the log of the attempt named by Spec.Previous instead.
	Previous bool
}

// LogStream gives entries in the order they were printed. Next returns io.EOF at the end and the error of the context
// that opened the stream when that ends. Close may be called at any time, and more than once.
type LogStream interface {
	Next() (LogEntry, error)
	Close() error
}

// LogEntry is one line without its newline. Lines longer than 1 MiB arrive in pieces.
type LogEntry struct {
	Time   time.Time `json:"time"`
	Stream string    `json:"stream"` // "stdout" or "stderr"
	Line   string    `json:"line"`
}

// Resizer is a driver that changes limits of a task that runs.
type Resizer interface {
	// Resize sets CPU, CPURequest and Memory of r, a zero being no limit; what else r says stays as it was. Memory is never
	// cut below what the task uses: the error is then an *InUse. After an error the limits are those from before.
	Resize(ctx context.Context, h Handle, r Resources) error
	// Limits reads what the kernel holds the task to: CPU and Memory, a zero being no limit.
	Limits(ctx context.Context, h Handle) (Resources, error)
}

// Layered is a driver that tells where its tasks write on the worker's disk beside their mounts.
type Layered interface {
	// Layer says where that is. A task that has none, because all it writes is somebody else's, gives a Layer without Dir, Files and Bytes.
	Layer(ctx context.Context, h Handle) (Layer, error)
	// DropLayer removes what a task that has exited wrote, before the task itself is removed.
	DropLayer(ctx context.Context, h Handle) error
}

// Layer is what a task writes to.
type Layer struct {
	Dir  string // where it lies on the disk
	Root string // where it is mounted over the image
	// Files are disks of a machine that it writes to.
	Files []string
	// Procs are the processes of the task. They may hold files that were deleted.
	Procs []int
	// Bytes and Inodes are what a layer takes that is in no directory, as those say who keep it.
	Bytes, Inodes int64
}

// Pinner is a driver that changes the processors of a task that runs.
type Pinner interface {
	// Pin sets the processors that a task may use, as in "0-2,5".
	Pin(ctx context.Context, h Handle, cpus string) error
}

// Checkpointer is a driver that writes a running task into files and goes on from them, also on another machine of the same kind.
// What is outside of the task is not in them: its network namespace, files that are mounted from the host. Connections are closed.
type Checkpointer interface {
	// CanCheckpoint tells whether that works on this machine, by doing it with a small task, once for each life of the driver. The
	// error is an *Unsupported that names cause and cure.
	CanCheckpoint(ctx context.Context) error
	// Checkpoint writes a task that was started with Spec.Checkpoint into a directory, which exists and is empty, and ends it. After
	// an error the task runs on.
	Checkpoint(ctx context.Context, h Handle, dir string) error
	// Restore is Start, but for the program, which goes on where Checkpoint found it. The spec's root file system and mounts must be
	// those of the task that was written; its network, limits and ID need not. The directory is only read.
	Restore(ctx context.Context, spec Spec, dir string) (Handle, error)
}

// Pauser is a driver that can hold a task still.
type Pauser interface {
	Pause(ctx context.Context, h Handle) error
	Resume(ctx context.Context, h Handle) error
}
