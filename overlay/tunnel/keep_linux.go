package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A datapath keeps sockets that are to outlive the agent, such as those at which instances ask for names: what comes for them
// while there is no agent waits in the kernel until the next one has taken them up. The agent hands them over, and gets
// them, on a unix socket of packets, because descriptors go with a packet. A connection there is a lease: some time after
// the last of them has ended the sockets are closed, so that their addresses are free again.
//
//	agent     k + descriptors   these are to be kept, in the place of those before
//	datapath  k, or e and why not
//	agent     g                 which are kept?
//	datapath  g + descriptors
const (
	keepFile = "keep.sock"
	keepFor  = time.Minute
	keepMax  = 64 // descriptors
)

const (
	keepThese = 'k'
	keepGive  = 'g'
	keepError = 'e'
)

// keeper is the datapath's end.
type keeper struct {
	rest time.Duration // keepFor; tests have less

	mu     sync.Mutex
	files  []int
	leases map[*net.UnixConn]bool
	ends   *time.Timer // closes the files; nil: there is a lease, or none yet
}

// serve answers until ln closes, and closes what is kept.
func (k *keeper) serve(ctx context.Context, ln *net.UnixListener) {
	k.leases = map[*net.UnixConn]bool{}
	var wg sync.WaitGroup
	defer func() {
		k.mu.Lock()
		for c := range k.leases {
			c.Close()
		}
		k.mu.Unlock()
		wg.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.replaceLocked(nil)
		if k.ends != nil {
			k.ends.Stop()
		}
	}()
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		c, err := ln.AcceptUnix()
		if err != nil {
			return
		}
		k.mu.Lock()
		full := len(k.leases) >= maxControllers
		if !full {
			k.leases[c] = true
			if k.ends != nil {
				k.ends.Stop()
				k.ends = nil
			}
		}
		k.mu.Unlock()
		if full {
			c.Close()
			continue
		}
		wg.Go(func() {
			k.talk(c)
			c.Close()
			k.mu.Lock()
			defer k.mu.Unlock()
			if delete(k.leases, c); len(k.leases) == 0 {
				k.ends = time.AfterFunc(k.rest, k.expire)
			}
		})
	}
}

func (k *keeper) expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.leases) == 0 {
		k.replaceLocked(nil)
	}
}

func (k *keeper) replaceLocked(files []int) {
	for _, fd := range k.files {
		unix.Close(fd)
	}
	k.files = files
}

func (k *keeper) talk(c *net.UnixConn) {
	for {
		what, text, files, err := receiveFiles(c)
		if err != nil {
			return
		}
		switch what {
		case keepThese:
			k.mu.Lock()
			k.replaceLocked(files)
			k.mu.Unlock()
			err = sendFiles(c, keepThese, "", nil)
		case keepGive:
			closeAll(files)
			k.mu.Lock()
			err = sendFiles(c, keepGive, "", k.files)
			k.mu.Unlock()
		default:
			closeAll(files)
			err = sendFiles(c, keepError, fmt.Sprintf("the datapath does not know %q", string(what)+text), nil)
		}
		if err != nil {
			return
		}
	}
}

func closeAll(files []int) {
	for _, fd := range files {
		unix.Close(fd)
	}
}

func sendFiles(c *net.UnixConn, what byte, text string, files []int) error {
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	_, _, err := c.WriteMsgUnix(append([]byte{what}, text...), rights, nil)
	return err
}

// receiveFiles gives the next packet and the descriptors that came with it, which are the caller's to close.
func receiveFiles(c *net.UnixConn) (what byte, text string, files []int, err error) {
	b, oob := make([]byte, 256), make([]byte, unix.CmsgSpace(4*keepMax))
	n, rights, flags, _, err := c.ReadMsgUnix(b, oob)
	if err != nil {
		return 0, "", nil, err
	}
	list, err := unix.ParseSocketControlMessage(oob[:rights])
	for i := range list {
		got, perr := unix.ParseUnixRights(&list[i])
		files, err = append(files, got...), errors.Join(err, perr)
	}
	if n == 0 {
		err = io.EOF
	} else if flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		err = errors.New("a message with too many descriptors")
	}
	if err != nil {
		closeAll(files)
		return 0, "", nil, err
	}
	return b[0], string(b[1:n]), files, nil
}

// Keep has the datapath keep sockets in the place of those that it keeps. They are kept for as long as this client lives, and
// a minute longer.
func (c *Client) Keep(ctx context.Context, sockets ...syscall.Conn) error {
	if len(sockets) > keepMax {
		return fmt.Errorf("keep %d sockets: at most %d", len(sockets), keepMax)
	}
	_, err := c.lease(ctx, keepThese, sockets)
	return err
}

// Kept gives the sockets that the datapath keeps. The caller closes what it gets.
func (c *Client) Kept(ctx context.Context) ([]*os.File, error) {
	files, err := c.lease(ctx, keepGive, nil)
	if err != nil {
		return nil, err
	}
	var out []*os.File
	for _, fd := range files {
		out = append(out, os.NewFile(uintptr(fd), "kept"))
	}
	return out, nil
}

func (c *Client) lease(ctx context.Context, what byte, sockets []syscall.Conn) ([]int, error) {
	c.leasing.Lock()
	defer c.leasing.Unlock()
	files, err := c.leaseLocked(ctx, what, sockets)
	if err != nil {
		if c.keep != nil { // its next answer could be one to this question
			c.keep.Close()
			c.keep = nil
		}
		return nil, fmt.Errorf("the datapath's keeping of sockets: %w", err)
	}
	return files, nil
}

func (c *Client) leaseLocked(ctx context.Context, what byte, sockets []syscall.Conn) ([]int, error) {
	if c.over {
		return nil, net.ErrClosed
	}
	if c.keep == nil {
		at, path, err := short(c.dir, keepFile)
		if err != nil {
			return nil, err
		}
		defer at.Close()
		n, err := (&net.Dialer{}).DialContext(ctx, "unixpacket", path)
		if err != nil {
			return nil, err
		}
		c.keep = n.(*net.UnixConn)
	}
	until := time.Now().Add(c.patience)
	if t, ok := ctx.Deadline(); ok && t.Before(until) {
		until = t
	}
	if err := c.keep.SetDeadline(until); err != nil {
		return nil, err
	}
	if err := withFDs(sockets, nil, func(fds []int) error { return sendFiles(c.keep, what, "", fds) }); err != nil {
		return nil, err
	}
	got, text, files, err := receiveFiles(c.keep)
	if err == nil && got != what {
		closeAll(files)
		err = errors.New(text)
	}
	return files, err
}

// withFDs calls f with the descriptors of sockets, all of which are held open meanwhile.
func withFDs(sockets []syscall.Conn, fds []int, f func([]int) error) error {
	if len(sockets) == 0 {
		return f(fds)
	}
	raw, err := sockets[0].SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = withFDs(sockets[1:], append(fds, int(fd)), f) })
	return errors.Join(err, inner)
}

// release ends the lease.
func (c *Client) release() {
	c.leasing.Lock()
	defer c.leasing.Unlock()
	c.over = true
	if c.keep != nil {
		c.keep.Close()
		c.keep = nil
	}
}

// listenIn listens at a unix socket in a directory, which is root's from its first moment on.
func listenIn(dir, network, file string) (net.Listener, error) {
	at, path, err := short(dir, file)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	mask := unix.Umask(0o177)
	ln, err := net.Listen(network, path)
	unix.Umask(mask)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", filepath.Join(dir, file), err)
	}
	if u, ok := ln.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // the path is of a descriptor that is closed; who listens next takes the file away
	}
	return ln, nil
}
