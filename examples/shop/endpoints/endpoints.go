// Package endpoints finds the services that a service is linked to: Skerry keeps their addresses in the file named by
// SKERRY_ENDPOINTS and replaces it when instances come and go. It is what an application would write for itself.
package endpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

// Endpoint is a port of a service, at an address that leads to its instances in turn; without the overlay it is a port of
// one instance.
type Endpoint struct {
	Instance string `json:"instance"` // after Do: who answered, if it said so in X-Instance
	Port     string `json:"port"`     // its name
	Address  string `json:"address"`
}

// Directory reads the file anew at each use: it is small, and an old address is worth nothing.
type Directory struct {
	File   string // default: the environment variable SKERRY_ENDPOINTS
	Client http.Client
	next   atomic.Uint64
}

// New gives a directory whose requests take at most a second for each endpoint.
func New() *Directory {
	return &Directory{File: os.Getenv("SKERRY_ENDPOINTS"), Client: http.Client{Timeout: time.Second}}
}

// Of lists the endpoints of a service.
func (d *Directory) Of(service string) ([]Endpoint, error) {
	data, err := os.ReadFile(d.File)
	if err != nil {
		return nil, fmt.Errorf("endpoints: %w", err)
	}
	var all map[string][]Endpoint
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("endpoints: %s: %w", d.File, err)
	}
	return all[service], nil
}

// tries is how often a service is asked at least: behind one address is another instance each time.
const tries = 3

// maxAnswer is the largest answer of a service that is read, in bytes.
const maxAnswer = 1 << 20

// Do sends a request to the endpoints of a service, one after the other, until one answers with a status below 500, and
// decodes the answer. It begins with another one each time, and makes at least three tries.
func (d *Directory) Do(ctx context.Context, method, service, path string, into any) (Endpoint, int, error) {
	list, err := d.Of(service)
	if err != nil {
		return Endpoint{}, 0, err
	}
	if len(list) == 0 {
		return Endpoint{}, 0, fmt.Errorf("%s: no instance is ready", service)
	}
	first := d.next.Add(1)
	var failed error
	for i := range uint64(max(len(list), tries)) {
		e := list[(first+i)%uint64(len(list))]
		status, by, err := d.try(ctx, method, "http://"+e.Address+path, into)
		if by != "" {
			e.Instance = by
		}
		if err == nil {
			return e, status, nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", e.Address, err))
	}
	return Endpoint{}, 0, fmt.Errorf("%s: %w", service, failed)
}

// try asks at one address, and gives the status and who answered.
func (d *Directory) try(ctx context.Context, method, url string, into any) (status int, by string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := d.Client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	by = res.Header.Get("X-Instance")
	if res.StatusCode >= 500 {
		return res.StatusCode, by, errors.New(res.Status)
	}
	if res.StatusCode >= 300 {
		return res.StatusCode, by, nil // the service's answer is no
	}
	return res.StatusCode, by, json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(into)
}
