package ctl

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
)

func (a *app) forwardCommand() *cobra.Command {
	var address string
	cmd := &cobra.Command{Use: "port-forward INSTANCE|APP/SERVICE [LOCAL:]REMOTE...", Short: "Forward local ports to an instance",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeLogs,
		Long:    "Forward local TCP ports to ports of an instance, or of a ready instance of a service, until Ctrl-C. LOCAL 0 picks a free port.",
		Example: "  skerry port-forward shop/front 8080\n  skerry port-forward front-x5b2k 9000:8080",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			var ports []portPair
			for _, s := range args[1:] {
				p, err := parsePorts(s)
				if err != nil {
					return err
				}
				ports = append(ports, p)
			}
			if _, err := a.findInstances(cmd.Context(), c, args[0]); err != nil {
				return err
			}
			return a.forward(cmd, c, args[0], address, ports)
		})}
	cmd.Flags().StringVar(&address, "address", "127.0.0.1", "local address to listen on")
	return cmd
}

type portPair struct{ local, remote int }

func parsePorts(s string) (p portPair, err error) {
	l, r, two := strings.Cut(s, ":")
	if !two {
		r = l
	}
	p.local, err = strconv.Atoi(l)
	if err == nil {
		p.remote, err = strconv.Atoi(r)
	}
	if err != nil || p.local < 0 || p.local > 65535 || p.remote < 1 || p.remote > 65535 {
		return p, skerry.Errorf(skerry.CodeInvalid, "%q is not a port", s).WithHint("write REMOTE or LOCAL:REMOTE, such as 8080 or 9000:8080")
	}
	return p, nil
}

func (a *app) forward(cmd *cobra.Command, client *api.Client, name, address string, ports []portPair) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	var listeners []net.Listener
	defer func() {
		for _, ln := range listeners {
			ln.Close()
		}
	}()
	for _, p := range ports {
		ln, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(p.local)))
		if err != nil {
			return skerry.Errorf(skerry.CodeConflict, "port %d: %w", p.local, err).
				WithHint("choose another local port: 0:%d picks a free one", p.remote)
		}
		listeners = append(listeners, ln)
		fmt.Fprintf(cmd.OutOrStdout(), "%s forwards to port %d of %s\n", ln.Addr(), p.remote, name)
	}
	for n, ln := range listeners {
		stop := context.AfterFunc(ctx, func() { ln.Close() })
		defer stop()
		wg.Go(func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					if err := a.forwardOne(ctx, client, name, ports[n].remote, conn); err != nil && ctx.Err() == nil {
						console.PrintError(cmd.ErrOrStderr(), err)
					}
				})
			}
		})
	}
	<-ctx.Done()
	return nil
}

// forwardOne joins a connection to an instance. The instance is looked for anew, because the last one may be gone.
func (a *app) forwardOne(ctx context.Context, client *api.Client, name string, port int, local net.Conn) error {
	defer local.Close()
	inst, err := a.oneInstance(ctx, client, name)
	if err != nil {
		return err
	}
	remote, err := client.PortForward(ctx, inst.ID, port)
	if err != nil {
		return err
	}
	defer remote.Close()
	stop := context.AfterFunc(ctx, func() { local.Close(); remote.Close() })
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(local, remote)
		local.Close() // there is no half-close on the way
	}()
	io.Copy(remote, local)
	remote.Close()
	<-done
	return nil
}
