package plugin

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"time"
)

var errTooMuch = errors.New("it answered more than 1 MiB")

// bounded keeps what is written up to MaxReply and refuses the rest.
type bounded struct {
	buf  bytes.Buffer
	over bool
	full func() // called when it is too much
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > MaxReply {
		b.over = true
		b.full()
		return 0, errTooMuch
	}
	return b.buf.Write(p)
}

// Bounds of what a plugin may write into the log.
const (
	logLine   = 500 // bytes of a line
	logLines  = 30  // lines in logWindow
	logWindow = time.Minute
)

// lines logs what a plugin writes to its standard error, line by line, so many lines in a time and no more. Methods may be
// called from any goroutine.
type lines struct {
	log  *slog.Logger
	name string

	mu    sync.Mutex
	line  []byte
	since time.Time
	count int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for len(p) > 0 {
		part, rest, ends := bytes.Cut(p, []byte("\n"))
		if room := logLine - len(l.line); room > 0 {
			l.line = append(l.line, part[:min(room, len(part))]...)
		}
		if ends {
			l.flushLocked()
		}
		p = rest
	}
	return n, nil
}

// flush logs what is left of a line.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

func (l *lines) flushLocked() {
	text := clean(string(l.line))
	l.line = l.line[:0]
	if text == "" {
		return
	}
	now := time.Now()
	if now.Sub(l.since) > logWindow {
		l.since, l.count = now, 0
	}
	if l.count++; l.count > logLines {
		if l.count == logLines+1 {
			l.log.Info("a plugin writes too much; the rest of this minute is left out", "plugin", l.name)
		}
		return
	}
	l.log.Info("a plugin writes: "+text, "plugin", l.name)
}
