// Kit is a handful of small programs in one, for the examples: something to run to its end, to serve files, to write them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const usage = `usage:
  kit primes N           count the primes below N
  kit hello              say who runs where
  kit write FILE TEXT    write a file
  kit clock FILE         write the time into a file every second
  kit serve ADDR DIR     serve the files of a directory over HTTP
  kit answer ADDR        tell, over HTTP, which instance answers, and from where it was asked
  kit count ADDR         tell, over HTTP, how often it was asked since it was started; nothing but its memory knows
  kit get URL [N [LIMIT]]   get a page N times, each by a connection of its own, and count the answers (default limit 10s)
  kit load URL PERIOD [LIMIT]   get a page again and again, and tell every second how many tries there were and how many failed (default limit 10s)
  kit lookup NAME        look up the addresses of a name
  kit endpoints          show where the services are that this one is linked to
  kit call SERVICE PATH  get a page of a service that this one is linked to, every second, and show it`

func run(args []string, out io.Writer) error {
	bad := errors.New(usage)
	if len(args) == 0 {
		return bad
	}
	switch {
	case args[0] == "primes" && len(args) == 2:
		n, err := strconv.Atoi(args[1])
		if err != nil || n < 0 || n > 100_000_000 {
			return fmt.Errorf("primes: %q is not a number from 0 to 100000000", args[1])
		}
		fmt.Fprintf(out, "there are %d primes below %d\n", primes(n), n)
	case args[0] == "hello" && len(args) == 1:
		fmt.Fprintf(out, "%s: instance %s on worker %s\n", time.Now().UTC().Format(time.RFC3339), os.Getenv("SKERRY_INSTANCE"), os.Getenv("SKERRY_WORKER"))
	case args[0] == "write" && len(args) == 3:
		return replace(args[1], args[2]+"\n")
	case args[0] == "clock" && len(args) == 2:
		for ; ; time.Sleep(time.Second) {
			if err := replace(args[1], time.Now().UTC().Format(time.RFC3339)+"\n"); err != nil {
				return err
			}
		}
	case args[0] == "serve" && len(args) == 3:
		log.Printf("serving %s on %s", args[2], args[1])
		return http.ListenAndServe(args[1], http.FileServer(http.Dir(args[2])))
	case args[0] == "count" && len(args) == 2:
		var asked atomic.Int64
		began := time.Now().UTC().Format(time.RFC3339Nano)
		return http.ListenAndServe(args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "asked %d times since %s\n", asked.Add(1), began)
		}))
	case args[0] == "answer" && len(args) == 2:
		return http.ListenAndServe(args[1], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s on %s, asked by %s\n", os.Getenv("SKERRY_INSTANCE"), os.Getenv("SKERRY_WORKER"), r.RemoteAddr[:strings.LastIndex(r.RemoteAddr, ":")])
		}))
	case args[0] == "endpoints" && len(args) == 1:
		b, err := os.ReadFile(os.Getenv("SKERRY_ENDPOINTS"))
		if err == nil {
			_, err = out.Write(b)
		}
		return err
	case args[0] == "call" && len(args) == 3:
		for ; ; time.Sleep(time.Second) {
			fmt.Fprintln(out, answer(os.Getenv("SKERRY_ENDPOINTS"), args[1], args[2]))
		}
	case args[0] == "get" && len(args) >= 2 && len(args) <= 4:
		n, limit := 1, 10*time.Second
		if len(args) > 2 {
			var err error
			if n, err = strconv.Atoi(args[2]); err != nil || n < 1 || n > 1_000_000 {
				return fmt.Errorf("get: %q is not a number from 1 to 1000000", args[2])
			}
		}
		if len(args) > 3 {
			var err error
			if limit, err = period(args[3]); err != nil {
				return fmt.Errorf("get: %w", err)
			}
		}
		return get(args[1], n, limit, out)
	case args[0] == "load" && (len(args) == 3 || len(args) == 4):
		times := []time.Duration{0, 10 * time.Second}
		for i, text := range args[2:] {
			var err error
			if times[i], err = period(text); err != nil {
				return fmt.Errorf("load: %w", err)
			}
		}
		load(args[1], times[0], times[1], out)
	case args[0] == "lookup" && len(args) == 2:
		addrs, err := net.LookupHost(args[1])
		for _, a := range addrs {
			fmt.Fprintln(out, a)
		}
		return err
	default:
		return bad
	}
	return nil
}

func period(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%q is not a time such as 20ms", text)
	}
	return d, nil
}

// answer is what call gets, or why it gets nothing.
func answer(file, service, path string) string {
	text, err := call(file, service, path)
	if err != nil {
		text = "call: " + err.Error()
	}
	return strings.TrimSpace(text)
}

// call gets a page of the first endpoint that a file has of a service.
func call(file, service, path string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var all map[string][]struct{ Address string }
	if err := json.Unmarshal(data, &all); err != nil {
		return "", err
	}
	if len(all[service]) == 0 {
		return "", fmt.Errorf("%s has no endpoint yet", service)
	}
	return page("http://"+all[service][0].Address+path, 10*time.Second)
}

// get asks for a page n times, and counts the different answers. A request fails that takes longer than limit.
func get(url string, n int, limit time.Duration, out io.Writer) error {
	answers := map[string]int{}
	failed := 0
	for range n {
		text, err := page(url, limit)
		if err != nil {
			if failed++; failed == 1 {
				log.Printf("get: %v", err)
			}
			continue
		}
		answers[strings.TrimSpace(text)]++
	}
	for _, text := range slices.Sorted(maps.Keys(answers)) {
		fmt.Fprintf(out, "%d x %s\n", answers[text], text)
	}
	if failed > 0 {
		return fmt.Errorf("get: %d of %d failed", failed, n)
	}
	return nil
}

// load asks for a page for ever, by a connection of its own each time, and counts. A request fails that takes longer than limit.
func load(url string, period, limit time.Duration, out io.Writer) {
	tries, failed, told := 0, 0, time.Now()
	for ; ; time.Sleep(period) {
		tries++
		if _, err := page(url, limit); err != nil {
			failed++
			log.Printf("load: %v", err)
		}
		if now := time.Now(); now.Sub(told) >= time.Second {
			told = now
			fmt.Fprintf(out, "%d tries, %d failed\n", tries, failed)
		}
	}
}

// page gets a page by a connection of its own. A name that is not answered is looked up again until limit. An error says how far it came.
func page(url string, limit time.Duration) (text string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stage atomic.Value
	begin := time.Now()
	reach := func(what string) {
		stage.Store(fmt.Sprintf("%s since %v", what, time.Since(begin).Round(time.Millisecond)))
	}
	reach("not begun")
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w after %v (%s)", err, time.Since(begin).Round(time.Millisecond), stage.Load())
		}
	}()
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart:     func(i httptrace.DNSStartInfo) { reach("looking up " + i.Host) },
		ConnectStart: func(_, addr string) { reach("connecting to " + addr) },
		GotConn: func(i httptrace.GotConnInfo) {
			reach(fmt.Sprintf("waiting for an answer from %v to %v", i.Conn.RemoteAddr(), i.Conn.LocalAddr()))
		},
		GotFirstResponseByte: func() { reach("reading the answer") },
	}), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	for lookup := new(net.DNSError); errors.As(err, &lookup) && lookup.IsTimeout && ctx.Err() == nil; {
		resp, err = client.Do(req)
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// primes counts with a sieve.
func primes(n int) (count int) {
	composite := make([]bool, max(n, 2))
	for i := 2; i < n; i++ {
		if composite[i] {
			continue
		}
		count++
		for j := i * i; j < n; j += i {
			composite[j] = true
		}
	}
	return count
}

// replace writes a file so that readers see the old or the new one.
func replace(file, text string) error {
	tmp := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, file)
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
