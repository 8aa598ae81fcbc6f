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

func main() {
	items := []Item{{"buoy", "Mooring buoy", 4900}, {"rope", "Rope, 30 m", 3500}, {"lamp", "Storm lamp", 2700}}
	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	http.HandleFunc("GET /items", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Instance", os.Getenv("SKERRY_INSTANCE"))
		json.NewEncoder(w).Encode(items)
	})
	log.Printf("catalog %s listens on :8080", os.Getenv("SKERRY_INSTANCE"))
	log.Fatal(http.ListenAndServe(":8080", nil))
}
