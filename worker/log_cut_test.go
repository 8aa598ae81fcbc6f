//go:build linux

package worker

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"skerry.dev/skerry/runtime"
)

// endingLog is a log of lines and an end.
type endingLog struct {
	lines []string
	end   error
}

func (l *endingLog) Next() (runtime.LogEntry, error) {
	if len(l.lines) == 0 {
		return runtime.LogEntry{}, l.end
	}
	line := l.lines[0]
	l.lines = l.lines[1:]
	return runtime.LogEntry{Stream: "stdout", Line: line}, nil
}

func (l *endingLog) Close() error { return nil }

// A log that cannot be read to its end does not look like one that was.
func TestCutLogIsNoWholeOne(t *testing.T) {
	for name, c := range map[string]struct {
		end  error
		fine bool
	}{
		"its end":         {io.EOF, true},
		"a broken disk":   {&os.PathError{Op: "read", Path: "log", Err: errors.New("input/output error")}, false},
		"the agent ends":  {context.Canceled, false},
		"nobody tells on": {os.ErrClosed, false},
	} {
		for _, follow := range []bool{false, true} {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				sendLog(w, &endingLog{[]string{"second"}, c.end}, &runtime.LogEntry{Line: "first"}, follow)
			}))
			res, err := http.Get(server.URL)
			var got []byte
			if err == nil {
				got, err = io.ReadAll(res.Body)
				res.Body.Close()
			}
			server.Close()
			if (err == nil) != c.fine {
				t.Errorf("%s, follow %v: the answer %q ends with %v, want it whole: %v", name, follow, got, err, c.fine)
			}
			if !strings.Contains(string(got), "first") || !strings.Contains(string(got), "second") {
				t.Errorf("%s, follow %v: the answer is %q, want both lines", name, follow, got)
			}
		}
	}
}
