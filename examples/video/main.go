// Video is a pipeline of four services that watch cameras, as that of the Oakestra paper (section 5.6): a source films, an aggregation puts
// the pictures of cameras together, a detection finds objects, a tracking follows them and tells how fast all of that is. All is computed, and small
// enough for one core: the film is synthetic, so that it is known where the objects really are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

const usage = `usage:
  video source [-to HOST:PORT] [-camera N] [-size WxH] [-rate N] [-slow N]
                                                                   film, as RTP over UDP; N times slower than life
  video aggregate [-listen :PORT] [-to URL]                         put pictures together
  video detect [-listen :PORT] [-to URL] [-cores N]                 find objects in them
  video track [-listen :PORT]                                       follow the objects; GET / gives statistics, as the output does
  video native [-for TIME] [-size WxH] [-rate N]                    run the four as processes of this machine, and tell the statistics`

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New(usage)
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	var listen, to *string
	address := func(port, next string) {
		listen = fs.String("listen", port, "")
		to = fs.String("to", next, "")
	}
	size, rate, camera, slow := fs.String("size", "640x360", ""), fs.Float64("rate", 10, ""), fs.Uint("camera", 1, ""), fs.Uint("slow", 1, "")
	cores, long := fs.Int("cores", 1, ""), fs.Duration("for", 20*time.Second, "")
	switch args[0] {
	case "source":
		address("", "aggregate:5004")
	case "aggregate":
		address(":5004", "http://detect:8080/")
	case "detect":
		address(":8080", "http://track:8080/")
	case "track":
		address(":8080", "")
	case "native":
		address("", "")
	default:
		return errors.New(usage)
	}
	if err := fs.Parse(args[1:]); err != nil || fs.NArg() > 0 || *cores < 1 || *long <= 0 || *slow < 1 || *slow > 1000 {
		return errors.New(usage)
	}
	var width, height int
	if n, err := fmt.Sscanf(*size, "%dx%d", &width, &height); err != nil || n != 2 {
		return fmt.Errorf("size %q is not one such as 640x360", *size)
	}
	switch args[0] {
	case "source":
		return source(ctx, *to, uint32(*camera), width, height, *rate, int64(*slow))
	case "aggregate":
		conn, err := net.ListenPacket("udp", *listen)
		if err != nil {
			return err
		}
		a := newAggregation(*to)
		go a.send(ctx)
		return a.receive(ctx, conn)
	case "detect":
		d := newDetection(*cores)
		go d.tell(ctx, *to)
		return serve(ctx, *listen, d)
	case "native":
		return native(ctx, *long, *size, *rate, out)
	}
	t := newTracking()
	go func() {
		for e := json.NewEncoder(out); ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Second):
				_ = e.Encode(t.stats())
			}
		}
	}()
	return serve(ctx, *listen, t)
}

func serve(ctx context.Context, listen string, h http.Handler) error {
	s := &http.Server{Addr: listen, Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { s.Close() })
	defer stop()
	if err := s.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// native runs the stages as processes of this machine, on ports of its loopback, for a time.
func native(ctx context.Context, long time.Duration, size string, rate float64, out io.Writer) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var ports []string
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		ports = append(ports, l.Addr().String())
		l.Close()
	}
	running, end := context.WithCancel(ctx)
	var stages []*exec.Cmd
	defer func() {
		end()
		for _, cmd := range stages {
			if e := cmd.Wait(); !errors.Is(e, context.Canceled) {
				err = errors.Join(err, e)
			}
		}
	}()
	for _, args := range [][]string{
		{"track", "-listen", ports[2]}, {"detect", "-listen", ports[1], "-to", "http://" + ports[2]}, {"aggregate", "-listen", ports[0], "-to", "http://" + ports[1]},
		{"source", "-to", ports[0], "-size", size, "-rate", fmt.Sprint(rate)},
	} {
		cmd := exec.CommandContext(running, self, args...)
		cmd.Stderr = os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		if err := cmd.Start(); err != nil {
			return err
		}
		stages = append(stages, cmd)
	}
	select {
	case <-ctx.Done():
	case <-time.After(long):
	}
	resp, err := http.Get("http://" + ports[2])
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(out, resp.Body)
	return err
}
