package otlp

import (
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"time"
)

// The types of this file are those of OTLP's JSON form: whole numbers of 64 bits are strings, identifiers are hexadecimal.

type attribute struct {
	Key   string `json:"key"`
	Value value  `json:"value"`
}

type value struct {
	String string `json:"stringValue"`
}

// wholeNumber is a count, or nanoseconds since 1970.
type wholeNumber int64

func (n wholeNumber) MarshalText() ([]byte, error) { return strconv.AppendInt(nil, int64(n), 10), nil }

func at(t time.Time) wholeNumber { return wholeNumber(t.UnixNano()) }

type hexID []byte

func (h hexID) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

func attributes(m map[string]string) []attribute {
	out := make([]attribute, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != "" {
			out = append(out, attribute{k, value{m[k]}})
		}
	}
	return out
}

type resource struct {
	Attributes []attribute `json:"attributes"`
}

type scope struct {
	Name string `json:"name"`
}

func ours() scope { return scope{"skerry"} }

// logRecord is one line of a log.
type logRecord struct {
	Time       wholeNumber `json:"timeUnixNano"`
	Observed   wholeNumber `json:"observedTimeUnixNano"`
	Severity   int         `json:"severityNumber,omitempty"`
	Text       string      `json:"severityText,omitempty"`
	Body       value       `json:"body"`
	Attributes []attribute `json:"attributes,omitempty"`
}

// weight is about what it takes in memory.
func (r logRecord) weight() int {
	n := 100 + len(r.Body.String)
	for _, a := range r.Attributes {
		n += 32 + len(a.Key) + len(a.Value.String)
	}
	return n
}

func (e *Exporter) logBody(list []logRecord) any {
	type scopeLogs struct {
		Scope   scope       `json:"scope"`
		Records []logRecord `json:"logRecords"`
	}
	type resourceLogs struct {
		Resource resource    `json:"resource"`
		Scopes   []scopeLogs `json:"scopeLogs"`
	}
	return struct {
		Logs []resourceLogs `json:"resourceLogs"`
	}{[]resourceLogs{{e.resource(), []scopeLogs{{ours(), list}}}}}
}

type span struct {
	Trace      hexID       `json:"traceId"`
	ID         hexID       `json:"spanId"`
	Parent     hexID       `json:"parentSpanId,omitempty"`
	Name       string      `json:"name"`
	Kind       int         `json:"kind"`
	Start      wholeNumber `json:"startTimeUnixNano"`
	End        wholeNumber `json:"endTimeUnixNano"`
	Attributes []attribute `json:"attributes,omitempty"`
	Status     *status     `json:"status,omitempty"`
}

type status struct {
	Message string `json:"message,omitempty"`
	Code    int    `json:"code"`
}

const (
	kindInternal = 1
	codeError    = 2
)

func (e *Exporter) spanBody(list []span) any {
	type scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	type resourceSpans struct {
		Resource resource     `json:"resource"`
		Scopes   []scopeSpans `json:"scopeSpans"`
	}
	return struct {
		Spans []resourceSpans `json:"resourceSpans"`
	}{[]resourceSpans{{e.resource(), []scopeSpans{{ours(), list}}}}}
}

type metric struct {
	Name        string     `json:"name"`
	Description string     `json:"description,omitempty"`
	Gauge       *gauge     `json:"gauge,omitempty"`
	Sum         *sum       `json:"sum,omitempty"`
	Histogram   *histogram `json:"histogram,omitempty"`
}

type gauge struct {
	Points []point `json:"dataPoints"`
}

type sum struct {
	Points      []point `json:"dataPoints"`
	Temporality int     `json:"aggregationTemporality"`
	Monotonic   bool    `json:"isMonotonic"`
}

type histogram struct {
	Points      []histogramPoint `json:"dataPoints"`
	Temporality int              `json:"aggregationTemporality"`
}

type histogramPoint struct {
	Start      wholeNumber   `json:"startTimeUnixNano"`
	Time       wholeNumber   `json:"timeUnixNano"`
	Count      wholeNumber   `json:"count"`
	Sum        float64       `json:"sum"`
	Counts     []wholeNumber `json:"bucketCounts"`
	Bounds     []float64     `json:"explicitBounds"`
	Attributes []attribute   `json:"attributes,omitempty"`
	below      wholeNumber
}

const cumulative = 2

type point struct {
	Start      wholeNumber `json:"startTimeUnixNano,omitempty"`
	Time       wholeNumber `json:"timeUnixNano"`
	Value      float64     `json:"asDouble"`
	Attributes []attribute `json:"attributes,omitempty"`
}

func (e *Exporter) metricsOf(list []*metric) any {
	type scopeMetrics struct {
		Scope   scope     `json:"scope"`
		Metrics []*metric `json:"metrics"`
	}
	type resourceMetrics struct {
		Resource resource       `json:"resource"`
		Scopes   []scopeMetrics `json:"scopeMetrics"`
	}
	return struct {
		Metrics []resourceMetrics `json:"resourceMetrics"`
	}{[]resourceMetrics{{e.resource(), []scopeMetrics{{ours(), list}}}}}
}
