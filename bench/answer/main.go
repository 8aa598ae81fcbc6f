// Command answer is the workload of `skerry bench orchestrator lab`: a small HTTP server, with nothing that a hundred
// of them on a machine would have to pay for. It answers every request with 200, ok, and its host's name, which is that
// of its instance.
//
//	answer :8080
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: answer ADDRESS")
		os.Exit(2)
	}
	name, err := os.Hostname()
	if err != nil {
		fmt.Fprintln(os.Stderr, "answer:", err)
		os.Exit(1)
	}
	text := "ok " + name + "\n"
	answer := fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	ln, err := net.Listen("tcp4", os.Args[1])
	for err == nil {
		var c net.Conn
		if c, err = ln.Accept(); err == nil {
			go serve(c, answer)
		}
	}
	fmt.Fprintln(os.Stderr, "answer:", err)
	os.Exit(1)
}

// serve answers requests without a body until the client has enough.
func serve(c net.Conn, answer []byte) {
	defer c.Close()
	for r := bufio.NewScanner(c); r.Scan(); {
		if strings.TrimSuffix(r.Text(), "\r") != "" {
			continue // a request ends with an empty line
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}
