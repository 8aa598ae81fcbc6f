package otlp

import (
	"context"
	"log/slog"
	"time"
)

// Handler hands what a log says to the exporter, beside the handler that writes it.
type Handler struct {
	slog.Handler
	e      *Exporter
	group  string
	before []attribute
}

// Tee makes a handler of another one.
func (e *Exporter) Tee(next slog.Handler) *Handler { return &Handler{Handler: next, e: e} }

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	record := logRecord{Time: at(r.Time), Observed: at(time.Now()), Severity: severity(r.Level), Text: r.Level.String(),
		Body: value{r.Message}, Attributes: append([]attribute(nil), h.before...)}
	r.Attrs(func(a slog.Attr) bool {
		record.Attributes = add(record.Attributes, h.group, a)
		return true
	})
	h.e.logs.add(record)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(list []slog.Attr) slog.Handler {
	out := &Handler{h.Handler.WithAttrs(list), h.e, h.group, append([]attribute(nil), h.before...)}
	for _, a := range list {
		out.before = add(out.before, h.group, a)
	}
	return out
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{h.Handler.WithGroup(name), h.e, h.group + name + ".", h.before}
}

func add(to []attribute, group string, a slog.Attr) []attribute {
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, x := range v.Group() {
			to = add(to, group, x)
		}
		return to
	}
	if a.Key == "" {
		return to
	}
	return append(to, attribute{group + a.Key, value{v.String()}})
}

// Line hands on what an instance wrote, and waits for room. An error stream is no level: programs write their logs there.
func (e *Exporter) Line(ctx context.Context, at time.Time, text string, about map[string]string) bool {
	return e.lines.addWhenRoom(ctx, logRecord{Time: wholeNumber(at.UnixNano()), Observed: wholeNumber(time.Now().UnixNano()),
		Body: value{text}, Attributes: attributes(about)})
}

// severity gives OTLP's number of a level: DEBUG is 5, INFO 9, WARN 13, ERROR 17.
func severity(l slog.Level) int { return min(max(int(l)+9, 1), 24) }
