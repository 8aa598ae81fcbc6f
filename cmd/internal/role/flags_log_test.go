package role

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestWithUnit(t *testing.T) {
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: withUnit})).Info("done", "took", 1500*time.Millisecond, "n", 3)
	if !strings.Contains(out.String(), `"took":"1.5s","n":3`) {
		t.Errorf("the log has %s", out.String())
	}
}
