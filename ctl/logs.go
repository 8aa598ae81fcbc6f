package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/wire"
)

// maxStreams bounds how many logs are read at a time.
const maxStreams = 20

func (a *app) logsCommand() *cobra.Command {
	var opt api.LogOptions
	var since string
	var timestamps, noPrefix, raw bool
	tail := -1
	cmd := &cobra.Command{Use: "logs APP/SERVICE | INSTANCE", Short: "Show the logs of instances", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeLogs,
		Long: "Show the logs of instances. With several instances, each line starts with the name of its instance.\n" +
			"With --follow, the log of an instance ends with its program, which is told on standard error.",
		Example: "  skerry logs shop/front -f\n  skerry logs front-x5b2k --since 5m --tail 100\n  skerry logs front-x5b2k --previous",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			var err error
			if opt.Since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			list, err := a.findInstances(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if tail == 0 && !opt.Follow {
				return nil
			}
			opt.Tail = max(tail, 0)
			if tail == 0 { // only what comes from now on
				opt.Since = time.Now()
			}
			p := &logPrinter{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), prefix: len(list) > 1 && !noPrefix, timestamps: timestamps, raw: raw}
			return readLogs(cmd.Context(), c, list, opt, p)
		})}
	fs := cmd.Flags()
	fs.BoolVarP(&opt.Follow, "follow", "f", false, "keep running and show new lines")
	fs.BoolVarP(&opt.Previous, "previous", "p", false, "show the run before the last restart")
	fs.StringVar(&since, "since", "", "only lines newer than 5m, 2h, 1d, or a time")
	fs.IntVar(&tail, "tail", -1, "number of newest lines to show")
	fs.StringVarP(&opt.Container, "container", "c", "", "init or sidecar container, instead of the main one")
	fs.BoolVarP(&timestamps, "timestamps", "t", false, "start each line with its time")
	fs.BoolVar(&noPrefix, "no-prefix", false, "do not start lines with the instance's name")
	fs.BoolVar(&raw, "raw", false, "write control characters to the terminal unescaped; by default they are shown as \\x1b")
	return cmd
}

func (a *app) completeLogs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return append(a.names(cmd.Context(), "service"), a.names(cmd.Context(), "instance")...), cobra.ShellCompDirectiveNoFileComp
}

// readLogs reads the logs of several instances at a time. The first error is told, but does not end the others.
func readLogs(ctx context.Context, client *api.Client, list []wire.Instance, opt api.LogOptions, printer *logPrinter) error {
	if len(list) > maxStreams && opt.Follow {
		return skerry.Errorf(skerry.CodeInvalid, "%d instances are too many to follow; at most %d are read at a time", len(list),
			maxStreams).WithHint("name one of them")
	}
	if len(list) == 1 || !opt.Follow { // one after the other, so that the lines of one stay together
		var first error
		for _, i := range list {
			err := readLog(ctx, client, i.ID, opt, printer)
			if interrupted(ctx) || errors.Is(err, io.ErrClosedPipe) {
				return nil
			}
			if err != nil && first != nil {
				fmt.Fprintf(printer.err, "%s: %v\n", i.ID, err)
			}
			if err != nil && first == nil {
				if first = err; len(list) > 1 {
					first = fmt.Errorf("%s: %w", i.ID, err)
				}
			}
		}
		return first
	}
	var wg sync.WaitGroup
	errs := make([]error, len(list))
	for n, i := range list {
		wg.Go(func() {
			errs[n] = readLog(ctx, client, i.ID, opt, printer)
			if errs[n] != nil && !interrupted(ctx) {
				printer.mu.Lock()
				fmt.Fprintf(printer.err, "%s: %v\n", i.ID, errs[n])
				printer.mu.Unlock()
			}
		})
	}
	wg.Wait()
	if interrupted(ctx) {
		return nil
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// readLog reads one log. Who follows it is told that it has ended, as it does with each run of a program.
func readLog(ctx context.Context, client *api.Client, id skerry.InstanceID, opt api.LogOptions, printer *logPrinter) error {
	err := client.Logs(ctx, id, opt, func(l api.LogLine) error { return printer.line(id, l) })
	if err == nil && opt.Follow && !opt.Previous && !interrupted(ctx) {
		printer.mu.Lock()
		defer printer.mu.Unlock()
		fmt.Fprintf(printer.err, "%s: the log has ended with its program; where that is started again, it has a new one\n", id)
	}
	return err
}

// logPrinter writes lines of logs. It is safe for concurrent use.
type logPrinter struct {
	mu                 sync.Mutex
	out, err           io.Writer
	prefix, timestamps bool
	raw                bool // also to a terminal
}

// line writes one line: of the program's standard error to ours, so that the two stay apart.
func (p *logPrinter) line(id skerry.InstanceID, entry api.LogLine) error {
	var b strings.Builder
	if p.prefix {
		b.WriteString(string(id) + " | ")
	}
	if p.timestamps {
		b.WriteString(entry.Time.Local().Format("2006-01-02T15:04:05.000Z07:00") + " ")
	}
	w := p.out
	if entry.Stream == "stderr" {
		w = p.err
	}
	text := strings.TrimSuffix(entry.Line, "\n")
	if p.raw {
		w = console.Raw(w)
	} else if _, ok := w.(*console.Screen); ok {
		text = strings.TrimSuffix(text, "\r")
	}
	b.WriteString(text + "\n")
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(w, b.String())
	return err
}
