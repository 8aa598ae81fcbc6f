package processstats

import (
	"bytes"
	"regexp"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestWrite(t *testing.T) {
	var out bytes.Buffer
	Write(&out)
	problems, err := promlint.New(bytes.NewReader(out.Bytes())).Lint()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out.String())
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	for _, name := range []string{"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds", "go_goroutines",
		"go_memstats_heap_alloc_bytes"} {
		match := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(out.Bytes())
		if match == nil {
			t.Errorf("%s is missing:\n%s", name, out.String())
		} else if v, err := strconv.ParseFloat(string(match[1]), 64); err != nil || v <= 0 {
			t.Errorf("%s is %s", name, match[1])
		}
	}
}
