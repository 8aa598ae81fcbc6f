// Command imaging is a service that derives ten pictures from one for each request, and tells how long that took: the one of which
// `skerry bench interference` measures what disturbs it. As in the thesis that it follows, workers are processes of which each uses one
// processor at a time, and threads how many requests each has in work at once; more wait.
//
//	imaging serve :8080     answers GET / with {"images":10,"load":s,"processing":s,"total":s,"sum":"..."}, GET /healthz with 200
//	imaging sum             prints the sum of an answer
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	workers = 2
	threads = 2
)

// answer is what a request is told. Times are in seconds: load to read and decode the source, processing to derive and write,
// total both, from when the request's turn came.
type answer struct {
	Images     int     `json:"images"`
	Load       float64 `json:"load"`
	Processing float64 `json:"processing"`
	Total      float64 `json:"total"`
	Sum        string  `json:"sum"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "imaging:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) == 2 && args[0] == "worker": // started by serve, with the listener as descriptor 3
		return work(args[1])
	case len(args) == 1 && args[0] == "sum":
		dir, err := os.MkdirTemp("", "imaging-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if err := prepare(dir); err != nil {
			return err
		}
		a, err := answerOne(dir, dir)
		if err == nil {
			fmt.Println(a.Sum)
		}
		return err
	}
	return errors.New("usage: imaging serve ADDRESS | imaging sum")
}

// serve starts the workers, which share one listener, and ends with the first of them, or by SIGTERM.
func serve(addr string) error {
	dir, err := os.MkdirTemp("", "imaging-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		return err
	}
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
	ended := make(chan error, workers)
	var started []*exec.Cmd
	for range workers {
		cmd := exec.Command(self, "worker", dir)
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

// work answers requests of the listener that it was started with.
func work(dir string) error {
	runtime.GOMAXPROCS(1)
	ln, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	// A place for the pictures of each request in work; those of the one before are written over.
	turns := make(chan string, threads)
	for i := range threads {
		place := filepath.Join(dir, strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(i))
		if err := os.Mkdir(place, 0o755); err != nil {
			return err
		}
		turns <- place
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		var place string
		select {
		case place = <-turns:
		case <-r.Context().Done():
			return
		}
		a, err := answerOne(dir, place)
		turns <- place
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a)
	})
	return (&http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}).Serve(ln)
}

func answerOne(dir, place string) (a answer, err error) {
	began := time.Now()
	m, err := load(dir)
	if err != nil {
		return a, err
	}
	loaded := time.Now()
	sum, n, err := process(m, place)
	if err != nil {
		return a, err
	}
	a.Images, a.Sum = n, fmt.Sprintf("%08x", sum)
	a.Load, a.Processing, a.Total = loaded.Sub(began).Seconds(), time.Since(loaded).Seconds(), time.Since(began).Seconds()
	return a, nil
}
