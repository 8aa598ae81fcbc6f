//go:build !wasip1

package main

import (
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// serve starts the processes, which share one listener, and ends with the first of them, or by SIGTERM.
func (s service) serve(addr string) error {
	dir, err := s.directory()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer ln.Close()
	file, err := ln.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ended := make(chan error, s.processes)
	var started []*exec.Cmd
	for range s.processes {
		cmd := exec.Command(self, "worker", s.name, dir)
		cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{file}
		if err = cmd.Start(); err != nil {
			break
		}
		started = append(started, cmd)
		go func() { ended <- cmd.Wait() }()
	}
	left := len(started)
	if err == nil {
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, os.Interrupt)
		select {
		case <-end:
		case err = <-ended:
			left--
			err = errors.Join(errors.New("a worker ended"), err)
		}
	}
	for _, cmd := range started {
		_ = cmd.Process.Kill() // what has ended is no fault
	}
	for range left {
		<-ended
	}
	return err
}

func answerAll(ln net.Listener, h http.Handler) error {
	return (&http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}).Serve(ln)
}
