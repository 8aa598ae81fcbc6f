//go:build linux

package containerd

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// logFile writes a task's log in the form of conmon's, "<RFC 3339 time> stdout|stderr F|P <text>\n", where P marks text
// whose line goes on. A full file is replaced by a new one; package monitor keeps the one before.
type logFile struct {
	dir string
	max int64 // of one file

	mu   sync.Mutex // protects what follows
	file *os.File
	size int64
}

func openLog(dir string, limit int64) (*logFile, error) {
	l := &logFile{dir: dir, max: limit / 2}
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	l.file = f
	return l, err
}

// copy writes what comes out of a pipe until that ends. What cannot be written, for the disk is full, is lost: the task
// must not be held up.
func (l *logFile) copy(stream string, from io.Reader) {
	r := bufio.NewReaderSize(from, 8<<10)
	for {
		line, err := r.ReadSlice('\n')
		if len(line) > 0 {
			tag := "F"
			if line[len(line)-1] != '\n' {
				tag = "P"
			} else {
				line = line[:len(line)-1]
			}
			l.write(stream, tag, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *logFile) write(stream, tag string, text []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := time.Now().AppendFormat(make([]byte, 0, len(text)+64), "2006-01-02T15:04:05.000000000Z07:00")
	b = append(b, ' ')
	b = append(append(append(b, stream...), ' '), tag...)
	b = append(append(append(b, ' '), text...), '\n')
	if l.size > 0 && l.size+int64(len(b)) > l.max {
		l.renew()
	}
	n, _ := l.file.Write(b)
	l.size += int64(n)
}

// renew puts a new file in the place of the log. When that cannot be, the old one is emptied: it stays bounded.
func (l *logFile) renew() {
	name := filepath.Join(l.dir, "log")
	f, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err == nil {
		if err = os.Rename(f.Name(), name); err != nil {
			f.Close()
		}
	}
	if err == nil {
		l.file.Close()
		l.file = f
	} else {
		_ = l.file.Truncate(0)
	}
	l.size = 0
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.file.Close()
}
