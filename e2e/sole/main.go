//go:build linux

// Sole holds the lock named by its argument for as long as it runs, and ignores the signal that asks it to end. A copy that finds the lock taken
// notes that in a file beside it.
//
//	sole FILE
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	signal.Ignore(syscall.SIGTERM)
	path, instance := os.Args[1], os.Getenv("SKERRY_WORKER")
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CREAT, 0o666)
	if err != nil {
		log.Fatal(err)
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		note(path+".twice", instance)
		log.Fatal("another copy runs: ", err)
	}
	note(path+".ran", instance)
	for {
		time.Sleep(time.Hour)
	}
}

// note appends a line; nobody else writes at the same time who would matter.
func note(path, line string) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(f, line)
	if err := f.Close(); err != nil {
		log.Fatal(err)
	}
}
