package tier

import (
	"bytes"
	"log/slog"
	"testing"

	"skerry.dev/skerry"
	"skerry.dev/skerry/wire"
)

// TestLogEvents: a line of the log names what there is, and nothing that there is not.
func TestLogEvents(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	LogEvents(log, []wire.Event{
		{Reason: "WorkerLost", Worker: "w2", Text: "it is gone"},
		{Reason: "Ready", App: skerry.AppKey{Namespace: "default", Name: "shop"}, Service: "front", Instance: "front-x", Cluster: "a", Text: "runs"},
	})
	const want = "level=INFO msg=WorkerLost worker=w2 text=\"it is gone\"\n" +
		"level=INFO msg=Ready app=default/shop service=front instance=front-x cluster=a text=runs\n"
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}
