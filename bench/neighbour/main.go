// Command neighbour disturbs: it uses one resource of a machine as much as it is let, as the loads of iBench do. How much that is, is
// for the limits of its cgroup to say.
//
//	neighbour cpu|memory|cache|disk|network THREADS
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
)

// bandwidth is what each thread copies through, more than caches hold; cached is about what they share.
const (
	bandwidth = 64 << 20
	cached    = 8 << 20
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "neighbour:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	kinds := map[string]func() error{"cpu": cpu, "memory": memory, "cache": cache, "disk": disk, "network": network}
	if len(args) == 2 && kinds[args[0]] != nil {
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 1 || n > 1024 {
			return errors.New("threads are 1 to 1024")
		}
		end := make(chan error)
		for range n {
			go func() { end <- kinds[args[0]]() }()
		}
		fmt.Println("ready")
		return <-end // never, but for what does not work
	}
	return errors.New("usage: neighbour cpu|memory|cache|disk|network THREADS")
}

// cpu computes.
func cpu() error {
	x := uint64(88172645463325252)
	for x != 0 { // which a xorshift never is
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return nil
}

// memory copies through more than caches hold.
func memory() error {
	a, b := make([]byte, bandwidth), make([]byte, bandwidth)
	for i := 0; ; i++ {
		a[i%len(a)]++
		copy(b, a)
		a, b = b, a
	}
}

// cache reads and writes lines of a cache in an order that no prefetcher guesses.
func cache() error {
	lines := make([]uint64, cached/8)
	x := uint64(88172645463325252)
	for {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		lines[x%uint64(len(lines))] += x
	}
}

// disk writes a file, and waits each time until it is kept.
func disk() error {
	f, err := os.CreateTemp("", "neighbour-")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil { // it goes with its descriptor
		return err
	}
	block := make([]byte, 1<<20)
	for i := int64(0); ; i++ {
		if _, err := f.WriteAt(block, i%16<<20); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
}

// network sends to itself.
func network() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	failed := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		failed <- err
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for err == nil {
		_, err = c.Write(block)
	}
	return errors.Join(err, <-failed)
}
