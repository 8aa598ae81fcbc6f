// Catalog knows what the shop sells.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
)

// Item is something on sale. Price is in cents.
type Item struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Price int    `json:"price"`
}

func handler(instance string, items []Item) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Instance", instance)
		json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /items", func(w http.ResponseWriter, _ *http.Request) { answer(w, items) })
	mux.HandleFunc("GET /items/{id}", func(w http.ResponseWriter, r *http.Request) {
		for _, i := range items {
			if i.ID == r.PathValue("id") {
				answer(w, i)
				return
			}
		}
		http.Error(w, "no such item", http.StatusNotFound)
	})
	return mux
}

func main() {
	items := []Item{{"buoy", "Mooring buoy", 4900}, {"rope", "Rope, 30 m", 3500}, {"lamp", "Storm lamp", 2700}}
	instance := os.Getenv("SKERRY_INSTANCE")
	log.Printf("catalog %s listens on :8080", instance)
	log.Fatal(http.ListenAndServe(":8080", handler(instance, items)))
}
