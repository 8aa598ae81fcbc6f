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

// Endpoint is one port of one instance.
type Endpoint struct {
	Instance string `json:"instance"`
	Port     string `json:"port"` // its name
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

// maxAnswer is the largest answer of a service that is read, in bytes.
const maxAnswer = 1 << 20

// Do sends a request to the endpoints of a service, one after the other, until one answers with a status below 500, and
// decodes the answer. It begins with another one each time.
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
	for i := range uint64(len(list)) {
		e := list[(first+i)%uint64(len(list))]
		status, err := d.try(ctx, method, "http://"+e.Address+path, into)
		if err == nil {
			return e, status, nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", e.Instance, err))
	}
	return Endpoint{}, 0, fmt.Errorf("%s: %w", service, failed)
}

func (d *Directory) try(ctx context.Context, method, url string, into any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return 0, err
	}
	res, err := d.Client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode >= 500 {
		return res.StatusCode, errors.New(res.Status)
	}
	if res.StatusCode >= 300 {
		return res.StatusCode, nil // the service's answer is no
	}
	return res.StatusCode, json.NewDecoder(io.LimitReader(res.Body, maxAnswer)).Decode(into)
}
