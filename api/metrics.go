package api

import (
	"fmt"
	"net/http"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// meter counts requests.
type meter struct{ set *metrics.Set }

func newMeter() *meter { return &meter{metrics.NewSet()} }

func (m *meter) request(operation string, status int, took time.Duration) {
	m.set.GetOrCreateCounter(fmt.Sprintf(`skerry_api_requests_total{operation=%q,status="%d"}`, operation, status)).Inc()
	m.set.GetOrCreateHistogram(fmt.Sprintf(`skerry_api_request_duration_seconds{operation=%q}`, operation)).Update(took.Seconds())
}

func (h *Handler) serveMetrics(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	h.opt.Backend.WriteMetrics(r.Context(), w)
	fmt.Fprintf(w, "skerry_build_info{version=%q,role=%q,name=%q} 1\n", h.opt.Version, h.opt.Backend.Tier(), h.opt.Backend.Name())
	fmt.Fprintf(w, "skerry_uptime_seconds %.3f\n", time.Since(h.opt.Backend.Started()).Seconds())
	h.limits.mu.Lock()
	open := h.limits.open
	h.limits.mu.Unlock()
	fmt.Fprintf(w, "skerry_api_streams %d\n", open)
	h.meter.set.WritePrometheus(w)
	metrics.WriteProcessMetrics(w)
}
