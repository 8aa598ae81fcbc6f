// Orders takes the shop's orders and keeps them in memory. It asks the catalog for prices.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"

	"skerry.dev/skerry/examples/shop/endpoints"
)

// Order is one item that somebody wants. Price is in cents, as the catalog said.
type Order struct {
	ID      string `json:"id"`
	Item    string `json:"item"`
	Price   int    `json:"price"`
	Catalog string `json:"catalog"` // instance that gave the price
}

// maxOrders bounds what is kept; the oldest go first.
const maxOrders = 10000

type book struct {
	instance string
	catalog  *endpoints.Directory

	mu     sync.Mutex
	orders []Order
	taken  int
}

func (b *book) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /orders", b.list)
	mux.HandleFunc("POST /orders/{item}", b.take)
	return mux
}

func (b *book) answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Instance", b.instance)
	json.NewEncoder(w).Encode(v)
}

func (b *book) list(w http.ResponseWriter, _ *http.Request) {
	b.mu.Lock()
	list := append([]Order{}, b.orders...)
	b.mu.Unlock()
	b.answer(w, list)
}

func (b *book) take(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("item")
	if id == "" || strings.ContainsAny(id, "/?#%") {
		http.Error(w, "no such item", http.StatusNotFound)
		return
	}
	var item struct {
		Price int `json:"price"`
	}
	e, status, err := b.catalog.Do(r.Context(), http.MethodGet, "catalog", "/items/"+id, &item)
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	case status != http.StatusOK:
		http.Error(w, "no such item", http.StatusNotFound)
		return
	}
	b.mu.Lock()
	b.taken++
	o := Order{fmt.Sprintf("%s-%d", b.instance, b.taken), id, item.Price, e.Instance}
	b.orders = append(b.orders, o)
	if len(b.orders) > maxOrders {
		b.orders = b.orders[1:]
	}
	b.mu.Unlock()
	b.answer(w, o)
}

func main() {
	b := &book{instance: os.Getenv("SKERRY_INSTANCE"), catalog: endpoints.New()}
	log.Printf("orders %s listens on :8080", b.instance)
	log.Fatal(http.ListenAndServe(":8080", b.handler()))
}
