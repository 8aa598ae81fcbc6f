//go:build linux

package vm

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"
)

// monitorSpan is how long a hypervisor may take to answer, and longestAnswer what it may say at once. What runs in the machine may
// have taken it over.
const (
	monitorSpan   = time.Minute
	longestAnswer = 64 << 10
)

// qmp is the end of QEMU's machine protocol. It is for one goroutine.
type qmp struct {
	conn  net.Conn
	lines *bufio.Scanner
}

// answer is what matters of what QEMU says: the end of a command, or an event.
type answer struct {
	Greeting *json.RawMessage `json:"QMP"`
	Return   *json.RawMessage `json:"return"`
	Error    *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
	Data  struct {
		Reason string `json:"reason"`
	} `json:"data"`
}

func newQMP(conn net.Conn) *qmp {
	q := &qmp{conn, bufio.NewScanner(conn)}
	q.lines.Buffer(nil, longestAnswer)
	return q
}

// next reads the next answer.
func (q *qmp) next() (a answer, err error) {
	if !q.lines.Scan() {
		return a, cmp.Or(q.lines.Err(), io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(q.lines.Bytes(), &a); err != nil {
		return a, fmt.Errorf("what QEMU says is not understood: %w", err)
	}
	return a, nil
}

// begin lets a machine go that waits to be. One that is gone again before QEMU could answer has begun, too.
func (q *qmp) begin() error {
	_ = q.conn.SetDeadline(time.Now().Add(monitorSpan))
	for _, command := range []string{"", "qmp_capabilities", "cont"} {
		if command != "" {
			if err := q.say(command); err != nil {
				return err
			}
		}
		for {
			a, err := q.next()
			if err != nil && command == "cont" {
				return nil
			}
			if err != nil {
				return err
			}
			if a.Error != nil {
				return fmt.Errorf("QEMU: %s: %s", command, a.Error.Desc)
			}
			if a.Return != nil || a.Greeting != nil {
				break
			}
		}
	}
	return q.conn.SetDeadline(time.Time{})
}

// say sends a command. Its answer is among what next reads.
func (q *qmp) say(command string) error {
	_ = q.conn.SetWriteDeadline(time.Now().Add(monitorSpan))
	_, err := fmt.Fprintf(q.conn, "{\"execute\": %q}\n", command)
	return err
}
