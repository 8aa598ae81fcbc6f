//go:build linux

package vm

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// firecrackerAPI is the end of Firecracker's API: requests of HTTP over a socket, one after the other. It is for one goroutine. Not
// http.Client's, because that keeps goroutines and connections for a process that makes eight requests in its life.
type firecrackerAPI struct {
	conn net.Conn
	left *io.LimitedReader // how much may still be said
	r    *bufio.Reader
}

func newFirecrackerAPI(conn net.Conn) *firecrackerAPI {
	left := &io.LimitedReader{R: conn}
	return &firecrackerAPI{conn, left, bufio.NewReader(left)}
}

// all makes requests, up to one that is refused.
func (a *firecrackerAPI) all(list []apiRequest) error {
	for _, r := range list {
		if err := a.do(r.method, r.path, r.body); err != nil {
			return err
		}
	}
	return nil
}

// do makes a request of a method that has a body.
func (a *firecrackerAPI) do(method, path string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	_ = a.conn.SetDeadline(time.Now().Add(monitorSpan))
	a.left.N = longestAnswer
	_, err = fmt.Fprintf(a.conn, "%s %s HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, len(data), data)
	if err == nil {
		err = readAnswer(a.r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// readAnswer reads the answer to a request, whose error is what Firecracker says against it.
func readAnswer(r *bufio.Reader) error {
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return notUnderstood(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, longestAnswer))
	if err != nil {
		return notUnderstood(err)
	}
	if answer.StatusCode/100 == 2 {
		return nil
	}
	var fault struct {
		Message string `json:"fault_message"`
	}
	_ = json.Unmarshal(body, &fault)
	return errors.New(clean(cmp.Or(fault.Message, fmt.Sprintf("Firecracker answers with status %d", answer.StatusCode))))
}

// notUnderstood says that an answer was none. Its words may hold what Firecracker sent.
func notUnderstood(err error) error {
	return errors.New("Firecracker's answer is not understood: " + clean(err.Error()))
}
