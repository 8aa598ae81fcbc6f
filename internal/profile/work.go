package profile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// WorkCommand is the hidden command of a program that runs WorkMain.
const WorkCommand = "profile-work"

// WorkMain does the work of a profile, in the runtime that is measured: as many requests as its argument says. Then it waits until it has
// been counted.
func WorkMain(args []string) int {
	n, err := -1, error(nil)
	if len(args) == 1 {
		n, err = strconv.Atoi(args[0])
	}
	if err != nil || n < 0 {
		fmt.Fprintf(os.Stderr, "error: %q is not a number of requests\n", args)
		return 1
	}
	if err := work(n, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
	}
	return 0
}

// filesEvery: a file is written for one of so many requests, as most requests to a service write none.
const filesEvery = 20

// work does what a small service does for a request, so many times: it reads one from a TCP connection, decodes and
// sorts it, digests a buffer, writes a file now and then and removes it, and answers. It says "ready" when it could
// begin, "took" with the nanoseconds that passed by the clock, and "done" with a digest of all answers, which is the
// same everywhere.
func work(requests int, out io.Writer) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	failed := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			_, err = io.Copy(conn, conn)
		}
		failed <- err
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	began := time.Now()
	list := make([]uint32, 512)
	buffer, digest := make([]byte, 64<<10), sha256.New()
	dir, err := os.MkdirTemp("", "skerry-work-") // several may run beside each other, and /tmp is everybody's
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "file")
	for i := range requests {
		for k, v := 0, uint32(i+1); k < len(list); k++ {
			v = v*1664525 + 1013904223
			list[k] = v
		}
		sent, err := json.Marshal(list)
		if err != nil {
			return err
		}
		if _, err := conn.Write(sent); err != nil {
			return err
		}
		came := buffer[:len(sent)]
		if _, err := io.ReadFull(conn, came); err != nil {
			return err
		}
		if !bytes.Equal(came, sent) {
			return fmt.Errorf("request %d came back as another one", i)
		}
		var got []uint32
		if err := json.Unmarshal(came, &got); err != nil {
			return err
		}
		slices.Sort(got)
		sum := sha256.Sum256(buffer)
		fmt.Fprint(digest, got[0], got[len(got)-1], sum)
		if i%filesEvery == 0 {
			if err := errors.Join(os.WriteFile(file, came, 0o600), os.Remove(file)); err != nil {
				return err
			}
		}
	}
	conn.Close()
	if err := <-failed; err != nil {
		return err
	}
	fmt.Fprintln(out, "took", time.Since(began).Nanoseconds())
	_, err = fmt.Fprintf(out, "done %d %x\n", requests, digest.Sum(nil)[:8])
	return err
}
