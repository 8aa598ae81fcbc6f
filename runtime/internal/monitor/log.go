//go:build linux

package monitor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"skerry.dev/skerry/runtime"
)

// maxLine is the longest line that is put together from conmon's pieces.
const maxLine = 1 << 20

// OpenLog begins reading the task's log.
func (t *Task) OpenLog(ctx context.Context, o runtime.LogOptions) (runtime.LogStream, error) {
	dir := t.Path("log")
	if o.Previous {
		dir, o.Follow = t.Path("previous"), false
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{ctx: ctx, cancel: cancel, dir: dir, since: o.Since, follow: o.Follow, partial: map[string][]byte{},
		changed: make(chan struct{}, 1)}
	if o.Follow {
		if err := s.watch(t); err != nil {
			cancel()
			return nil, err
		}
	}
	if err := s.openFiles(); err != nil {
		s.Close()
		return nil, err
	}
	if o.Tail != 0 {
		if err := s.skipTo(o.Tail); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// stream reads "old" and then "log", and follows "log" through its rotations. Next and Close may be called by
// different goroutines; Next by one at a time.
type stream struct {
	ctx    context.Context
	dir    string
	since  time.Time
	follow bool

	mu      sync.Mutex // held by Next, and by Close once Next was woken; protects what follows
	peeking bool       // a line that is not finished yet stays so
	files   []*os.File // still to be read; the last is the newest
	cur     *bufio.Reader
	partial map[string][]byte // beginning of a line, per stream
	ready   []runtime.LogEntry

	// Following: changed tells of changes, exited that the task has ended.
	keep    *keeper // nil where nothing is followed
	changed chan struct{}
	cancel  context.CancelFunc // of ctx; also wakes a reader
	wg      sync.WaitGroup
	exited  atomic.Bool

	closeOnce sync.Once
}

func (s *stream) openFiles() error {
	var err error
	if s.files, _, err = openParts(s.dir); len(s.files) > 0 {
		s.cur = bufio.NewReaderSize(s.files[0], 1<<16)
	}
	return err
}

// openParts opens what there is of a log, the oldest first.
func openParts(dir string) (files []*os.File, infos []os.FileInfo, err error) {
	for _, name := range []string{"old", "keep", "log"} {
		f, err := os.Open(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var info os.FileInfo
		if err == nil {
			files = append(files, f)
			info, err = f.Stat()
		}
		if err != nil {
			closeAll(files)
			return nil, nil, err
		}
		// "keep" is usually a second name of "log".
		if n := len(infos); n > 0 && os.SameFile(infos[n-1], info) {
			f.Close()
			files = files[:n]
			continue
		}
		infos = append(infos, info)
	}
	return files, infos, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// watch arranges to be woken by writes, by rotations and by the end of the task.
func (s *stream) watch(t *Task) error {
	if err := t.set.keep.follow(s.dir, s.changed); err != nil {
		return err
	}
	s.keep = t.set.keep
	s.wg.Go(func() {
		// Whatever the answer is, there is nothing more to wait for.
		_, _ = t.Wait(s.ctx)
		s.exited.Store(true)
		wake(s.changed)
	})
	return nil
}

// skipTo reads to the present end and keeps the last n entries.
func (s *stream) skipTo(n int) error {
	n = max(n, 0)
	var last []runtime.LogEntry
	follow := s.follow
	s.follow, s.peeking = false, follow
	for {
		e, err := s.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if last = append(last, e); len(last) > 2*n+64 {
			last = append(last[:0], last[len(last)-n:]...)
		}
	}
	s.ready, s.follow, s.peeking = last[max(0, len(last)-n):], follow, false
	return nil
}

// Next gives the next entry.
func (s *stream) Next() (runtime.LogEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.ctx.Err(); err != nil {
			return runtime.LogEntry{}, err
		}
		if len(s.ready) > 0 {
			e := s.ready[0]
			s.ready = s.ready[1:]
			return e, nil
		}
		// Read after this load, so that what was printed before the end is seen.
		exited := s.exited.Load()
		line, err := s.readLine()
		switch {
		case err == nil:
			if e, ok := s.take(line); ok {
				return e, nil
			}
		case err != io.EOF:
			return runtime.LogEntry{}, err
		case s.nextFile():
		case !s.follow || exited:
			if e, ok := s.flush(); ok {
				return e, nil
			}
			return runtime.LogEntry{}, io.EOF
		default:
			if err := s.sleep(); err != nil {
				return runtime.LogEntry{}, err
			}
		}
	}
}

// readLine gives a whole line. At the end of the file it leaves a line that is not finished yet to be read again.
func (s *stream) readLine() ([]byte, error) {
	if s.cur == nil {
		return nil, io.EOF
	}
	line, err := s.cur.ReadSlice('\n')
	if err == io.EOF && len(line) > 0 {
		if _, err := s.files[0].Seek(-int64(len(line)), io.SeekCurrent); err != nil {
			return nil, err
		}
		s.cur.Reset(s.files[0])
	}
	if err == bufio.ErrBufferFull {
		return line, nil
	}
	return line, err
}

// nextFile goes on to a newer file. It answers true once more than there are files when the newest was replaced: what
// was written between our last read and the rename must be read first.
func (s *stream) nextFile() bool {
	if len(s.files) > 1 {
		s.files[0].Close()
		s.files = s.files[1:]
		s.cur.Reset(s.files[0])
		return true
	}
	if !s.follow {
		return false
	}
	f, err := os.Open(filepath.Join(s.dir, "log"))
	if err != nil {
		return false
	}
	if len(s.files) == 0 {
		s.files, s.cur = []*os.File{f}, bufio.NewReaderSize(f, 1<<16)
		return true
	}
	a, errA := f.Stat()
	b, errB := s.files[0].Stat()
	f.Close()
	if errA != nil || errB != nil || os.SameFile(a, b) {
		return false
	}
	// Conmon has stopped writing to the old file by now, so one more pass over it is the last.
	return s.openNewer(b)
}

// openNewer adds the files that are newer than the one that is read: several, for who reads slowly.
func (s *stream) openNewer(than os.FileInfo) bool {
	for again := true; ; again = false {
		files, infos, err := openParts(s.dir)
		if err != nil {
			return false
		}
		at := slices.IndexFunc(infos, func(i os.FileInfo) bool { return os.SameFile(i, than) })
		if at < 0 && again { // its names may have changed meanwhile
			closeAll(files)
			continue
		}
		closeAll(files[:at+1])
		s.files = append(s.files, files[at+1:]...)
		return len(files) > at+1
	}
}

func (s *stream) sleep() error {
	select {
	case <-s.changed:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-s.keep.done: // nobody would tell
		return os.ErrClosed
	}
}

// take turns a line of the file into an entry, joining what conmon split.
func (s *stream) take(line []byte) (runtime.LogEntry, bool) {
	e, partial, ok := parseLine(line)
	if !ok {
		return e, false
	}
	if p := s.partial[e.Stream]; len(p) > 0 {
		e.Line = string(p) + e.Line
		delete(s.partial, e.Stream)
	}
	if partial && len(e.Line) < maxLine {
		s.partial[e.Stream] = []byte(e.Line)
		return e, false
	}
	return e, !e.Time.Before(s.since)
}

// flush gives what was printed without a newline before the end.
func (s *stream) flush() (runtime.LogEntry, bool) {
	if s.peeking {
		return runtime.LogEntry{}, false
	}
	for name, p := range s.partial {
		delete(s.partial, name)
		return runtime.LogEntry{Time: time.Now(), Stream: name, Line: string(p)}, true
	}
	return runtime.LogEntry{}, false
}

// Close ends the stream.
func (s *stream) Close() error {
	s.closeOnce.Do(func() {
		s.cancel()
		s.wg.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.keep != nil {
			s.keep.unfollow(s.dir, s.changed)
		}
		for _, f := range s.files {
			f.Close()
		}
	})
	return nil
}

// parseLine reads conmon's format, "<RFC 3339 time> stdout|stderr F|P <text>\n"; P marks text whose line goes on.
func parseLine(b []byte) (e runtime.LogEntry, partial, ok bool) {
	b = bytes.TrimSuffix(b, []byte("\n"))
	stamp, rest, ok1 := strings.Cut(string(b), " ")
	name, rest, ok2 := strings.Cut(rest, " ")
	tag, text, _ := strings.Cut(rest, " ")
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if !ok1 || !ok2 || err != nil || name != "stdout" && name != "stderr" || tag != "F" && tag != "P" {
		return e, false, false
	}
	return runtime.LogEntry{Time: at, Stream: name, Line: text}, tag == "P", true
}
