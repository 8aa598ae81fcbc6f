// Echo answers connections on port 80 with what they send. "echo facts" says first what it finds itself in; "echo hold MiB" takes that
// much memory until its input ends.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		hold(os.Args[2])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "facts" {
		say()
	}
	l, err := net.Listen("tcp", ":80")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening")
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(1)
		}
		go func() {
			_, _ = io.Copy(conn, conn)
			conn.Close()
		}()
	}
}

// say prints what differs between machines, as one line of JSON.
func say() {
	number := make([]byte, 32)
	_, _ = rand.Read(number)
	urandom := make([]byte, 32)
	if f, err := os.Open("/dev/urandom"); err == nil {
		_, _ = io.ReadFull(f, urandom)
		f.Close()
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	host, _ := os.Hostname()
	facts := map[string]string{"random": hex.EncodeToString(number), "urandom": hex.EncodeToString(urandom),
		"boot": strings.TrimSpace(string(boot)), "host": host, "time": strconv.FormatInt(time.Now().UnixNano(), 10)}
	if eth, err := net.InterfaceByName("eth0"); err == nil {
		addresses, _ := eth.Addrs()
		facts["mac"], facts["addresses"] = eth.HardwareAddr.String(), fmt.Sprint(addresses)
	}
	line, _ := json.Marshal(facts)
	fmt.Println(string(line))
}

func hold(mib string) {
	n, _ := strconv.Atoi(mib)
	memory := make([]byte, n<<20)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	fmt.Println("held")
	_, _ = io.Copy(io.Discard, os.Stdin)
	fmt.Println(len(memory))
}
