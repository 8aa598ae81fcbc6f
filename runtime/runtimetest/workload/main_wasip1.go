// Workload is the program that the conformance suite runs in every runtime. Each command proves one thing.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
)

// hasNot is the exit status for what WASI does not have.
const hasNot = 93

func main() {
	if len(os.Args) < 2 {
		fail("name a command")
	}
	args := os.Args[2:]
	if common(os.Args[1], args) {
		return
	}
	switch os.Args[1] {
	case "sleep", "stubborn": // no signal arrives
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "spin": // so many times longer, as processor time cannot be read
		for began := time.Now(); time.Since(began) < time.Duration(number(args))*8*time.Millisecond; {
		}
	case "grow": // hold so many MiB, and so many more when a file is there
		held := bytes.Repeat([]byte{1}, number(args)<<20)
		fmt.Println("ready")
		for {
			if _, err := os.Stat("/mnt/grow"); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		more := bytes.Repeat([]byte{1}, number(args[1:])<<20)
		fmt.Println("grown", len(held)+len(more))
		time.Sleep(time.Hour)
	case "cgi": // answer one request
		body, err := io.ReadAll(os.Stdin)
		check(err)
		fmt.Printf("Status: 201 Made\r\nContent-Type: text/plain\r\nX-Mule: yes\r\n\r\n%s\n%s", strings.Join(os.Environ(), "\n"), body)
	case "accept": // answer connections to the first socket
		_, fd, _ := strings.Cut(os.Getenv("SKERRY_LISTEN"), "=")
		ln, err := net.FileListener(os.NewFile(uintptr(number([]string{fd})), "socket"))
		check(err)
		fmt.Println("ready")
		for {
			conn, err := ln.Accept()
			check(err)
			_, err = io.Copy(conn, io.LimitReader(conn, 4))
			check(err)
			conn.Close()
		}
	default:
		fmt.Println("WASI has nothing for", os.Args[1])
		os.Exit(hasNot)
	}
}
