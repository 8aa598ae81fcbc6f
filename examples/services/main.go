// Command services is the services of which `skerry bench interference` measures what disturbs them: one that derives pictures, a
// database, a neural network, one that finds objects in the pictures of a video, and a stream of MQTT messages. Each tells with each answer
// how long it took itself.
//
//	services serve NAME :8080     answers GET /?n=N with {"load":s,"processing":s,"total":s,"sum":"..."}, GET /healthz with 200
//	services serve mqtt :8080     is an MQTT broker (3.1.1) and a subscriber of topic sensors, to which messages with samples are published; it publishes
//	                              the same with the id of the message on the topic that the message names
//	services messages mqtt        prints the samples of message 0, of message 1, ...
//	services sums NAME            prints the sum of the answer to N = 0, to N = 1, ...; after the last it begins again
//
// As in the thesis that image follows, workers are processes of which each uses one processor at a time, and threads how many requests each has in
// work at once; more wait.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	workers = 2
	threads = 2
)

// service is one of the services.
type service struct {
	name string
	// answers is how many different requests there are.
	answers int
	// processes share a listener and the workers' processors.
	processes int
	// prepare writes what requests need to a directory, once.
	prepare func(dir string) error
	// open gives what answers requests, once in each process.
	open func(dir string) (kernel, error)
}

// kernel answers request n, and gives a checksum of the answer. It calls loaded once, when it has what it works on, and may write to a directory in which
// no other request is in work.
type kernel func(n int, place string, loaded func()) (sum uint32, err error)

func services() []service {
	return []service{
		{"image", 1, workers, prepareImage, openImage},
		{"database", inputs, 1, prepareDatabase, openDatabase},
		{"inference", inputs, workers, prepareInference, openInference},
		{"video", inputs, workers, prepareVideo, openVideo},
		{mqttName, inputs, 1, prepareSensors, openSensors},
	}
}

// mqttName is the service that is asked by messages and not by HTTP.
const mqttName = "mqtt"

// inputs is how many different requests most services have.
const inputs = 16

// answer is what a request is told. Times are in seconds: load until there is what to work on, processing from then, total both, from when the request's
// turn came.
type answer struct {
	Load       float64 `json:"load"`
	Processing float64 `json:"processing"`
	Total      float64 `json:"total"`
	Sum        string  `json:"sum"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	usage := errors.New("usage: services serve NAME ADDRESS | services sums NAME | services messages mqtt")
	if len(args) < 2 {
		return usage
	}
	var names []string
	for _, s := range services() {
		if s.name != args[1] {
			names = append(names, s.name)
			continue
		}
		switch {
		case len(args) == 3 && args[0] == "serve":
			return s.serve(args[2])
		case len(args) == 3 && args[0] == "worker": // started by serve, with the listener as descriptor 3
			return s.work(os.NewFile(3, "listener"), args[2])
		case len(args) == 2 && args[0] == "sums":
			return s.sums(out)
		case len(args) == 2 && args[0] == "messages" && s.name == mqttName:
			for n := range s.answers {
				if err := json.NewEncoder(out).Encode(samples(n)); err != nil {
					return err
				}
			}
			return nil
		}
		return usage
	}
	return fmt.Errorf("there is no service %q; there are %s", args[1], strings.Join(names, ", "))
}

// directory makes one for a service's files, below that for temporary ones, and prepares it.
func (s service) directory() (string, error) {
	dir, err := os.MkdirTemp("", s.name+"-")
	if err != nil {
		return "", err
	}
	if err := s.prepare(dir); err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return dir, nil
}

// sums prints the sum of each answer.
func (s service) sums(out io.Writer) error {
	dir, err := s.directory()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	k, err := s.open(dir)
	if err != nil {
		return err
	}
	for n := range s.answers {
		a, err := k.answer(n, dir)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, a.Sum)
	}
	return nil
}

// work answers requests of a listener.
func (s service) work(listener *os.File, dir string) error {
	runtime.GOMAXPROCS(workers / s.processes)
	k, err := s.open(dir)
	if err != nil {
		return err
	}
	ln, err := net.FileListener(listener)
	if err != nil {
		return err
	}
	if s.name == mqttName {
		return stream(ln)
	}
	h, err := s.handler(k, dir)
	if err != nil {
		return err
	}
	return answerAll(ln, h)
}

func (s service) handler(k kernel, dir string) (http.Handler, error) {
	// A place for the files of each request in work; those of the one before are written over.
	turns := make(chan string, threads*workers/s.processes)
	for i := range cap(turns) {
		place := filepath.Join(dir, strconv.Itoa(os.Getpid())+"-"+strconv.Itoa(i))
		if err := os.Mkdir(place, 0o755); err != nil {
			return nil, err
		}
		turns <- place
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		n := 0
		if text := r.FormValue("n"); text != "" {
			var err error
			if n, err = strconv.Atoi(text); err != nil || n < 0 {
				http.Error(w, "n is a number of a request", http.StatusBadRequest)
				return
			}
		}
		var place string
		select {
		case place = <-turns:
		case <-r.Context().Done():
			return
		}
		a, err := k.answer(n%s.answers, place)
		turns <- place
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a)
	})
	return mux, nil
}

// answer answers a request, and measures it.
func (k kernel) answer(n int, place string) (a answer, err error) {
	began := time.Now()
	var load time.Duration
	sum, err := k(n, place, func() { load = time.Since(began) })
	if err != nil {
		return a, err
	}
	total := time.Since(began)
	return answer{load.Seconds(), (total - load).Seconds(), total.Seconds(), fmt.Sprintf("%08x", sum)}, nil
}
