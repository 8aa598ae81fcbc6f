// Rows keeps numbered rows in a file, each on the disk before it is acknowledged, or forwards to what does. Tests run it as a small database and
// its front:
//
//	rows keep DIR
//	rows forward HOST:PORT
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// file has a row on each line. What a crash has left of the last one is cut off.
type file struct {
	mu sync.Mutex
	f  *os.File
}

func open(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	whole := int64(0)
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		whole += int64(len(line))
	}
	if err := f.Truncate(whole); err != nil {
		return nil, err
	}
	_, err = f.Seek(whole, 0)
	return &file{f: f}, err
}

func (k *file) put(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, err := strconv.Atoi(r.PathValue("n"))
	if err == nil {
		_, err = fmt.Fprintln(k.f, n)
	}
	if err == nil {
		err = k.f.Sync()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (k *file) list(w http.ResponseWriter, _ *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, err := os.ReadFile(k.f.Name())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	rows := []int{}
	for _, line := range strings.Fields(string(data)) {
		if n, err := strconv.Atoi(line); err == nil {
			rows = append(rows, n)
		}
	}
	json.NewEncoder(w).Encode(rows)
}

func main() {
	version := os.Getenv("VERSION")
	if len(os.Args) != 3 || version == "bad" {
		log.Fatalf("version %q of %q ends", version, os.Args[1:])
	}
	http.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, version) })
	if os.Args[1] == "keep" {
		k, err := open(filepath.Join(os.Args[2], "rows"))
		if err != nil {
			log.Fatal(err)
		}
		http.HandleFunc("POST /rows/{kind}/{n}", k.put)
		http.HandleFunc("GET /rows/{kind}", k.list)
	} else {
		http.Handle("/rows/", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: os.Args[2]}))
	}
	server := &http.Server{Addr: ":8000"}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ended := make(chan error)
	go func() {
		<-ctx.Done()
		ended <- server.Shutdown(context.Background()) // who is being served is served to the end
	}()
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		log.Fatal(err)
	}
	if err := <-ended; err != nil {
		log.Fatal(err)
	}
}
