// Front is what the shop's customers see. It asks the catalog and the orders, and says which instances answered.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"

	"skerry.dev/skerry/examples/shop/endpoints"
)

// Part is what a service answered, and which instance of it did.
type Part struct {
	Instance string          `json:"instance,omitempty"`
	Address  string          `json:"address,omitempty"`
	Answer   json.RawMessage `json:"answer,omitempty"`
	Error    string          `json:"error,omitempty"`
}

// Page is an answer of the front: its own instance with the parts from others.
type Page struct {
	Instance string `json:"instance"`
	Worker   string `json:"worker"`
	Catalog  *Part  `json:"catalog,omitempty"`
	Orders   *Part  `json:"orders,omitempty"`
}

type front struct {
	instance, worker string
	services         *endpoints.Directory
}

func (f *front) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		catalog, _ := f.ask(r.Context(), http.MethodGet, "catalog", "/items")
		orders, _ := f.ask(r.Context(), http.MethodGet, "orders", "/orders")
		f.answer(w, http.StatusOK, Page{Catalog: catalog, Orders: orders})
	})
	mux.HandleFunc("POST /buy/{item}", func(w http.ResponseWriter, r *http.Request) {
		item := r.PathValue("item")
		if strings.ContainsAny(item, "/?#%") {
			http.NotFound(w, r)
			return
		}
		orders, status := f.ask(r.Context(), http.MethodPost, "orders", "/orders/"+item)
		f.answer(w, status, Page{Orders: orders})
	})
	return mux
}

// ask asks a service; a failure is part of the answer.
func (f *front) ask(ctx context.Context, method, service, path string) (*Part, int) {
	p := &Part{}
	e, status, err := f.services.Do(ctx, method, service, path, &p.Answer)
	p.Instance, p.Address = e.Instance, e.Address
	if err != nil {
		p.Error = err.Error()
		return p, http.StatusBadGateway
	}
	if status >= 300 {
		p.Error = http.StatusText(status)
	}
	return p, status
}

func (f *front) answer(w http.ResponseWriter, status int, p Page) {
	p.Instance, p.Worker = f.instance, f.worker
	for _, part := range []*Part{p.Catalog, p.Orders} {
		if part != nil && part.Error != "" && status == http.StatusOK {
			status = http.StatusBadGateway
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.Encode(p)
}

func main() {
	f := &front{instance: os.Getenv("SKERRY_INSTANCE"), worker: os.Getenv("SKERRY_WORKER"), services: endpoints.New()}
	log.Printf("front %s listens on :8080", f.instance)
	log.Fatal(http.ListenAndServe(":8080", f.handler()))
}
