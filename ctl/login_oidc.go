package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/auth"
)

// loginAtProvider logs in by a browser, which the identity provider sends back to a port of this machine.
func loginAtProvider(cmd *cobra.Command, client *api.Client) (auth.Tokens, error) {
	ctx := cmd.Context()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return auth.Tokens{}, err
	}
	begun, err := client.BeginOIDC(ctx, "http://"+listener.Addr().String()+"/callback")
	if err != nil {
		return auth.Tokens{}, errors.Join(err, listener.Close())
	}
	at, err := url.Parse(begun.URL)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Query().Get("state") == "" {
		return auth.Tokens{}, errors.Join(skerry.Errorf(skerry.CodeUnauthorized, "the server names no page to log in at: %.100q", begun.URL),
			listener.Close())
	}
	state := at.Query().Get("state")
	type answer struct{ code, problem string }
	got := make(chan answer, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /callback", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("state") != state { // other people on this machine, and any page in a browser here, reach this port, too
			http.Error(w, "this is not of the login that was begun", http.StatusBadRequest)
			return
		}
		a := answer{q.Get("code"), ""}
		if e := q.Get("error"); e != "" {
			a.problem = fmt.Sprintf("%.100q: %.300q", e, q.Get("error_description"))
		}
		select {
		case got <- a:
			fmt.Fprintln(w, "You may close this page; the command goes on.")
		default:
			http.Error(w, "this login has ended already", http.StatusConflict)
		}
	})
	srv := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second) // for the browser to get its answer
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
		<-served
	}()
	fmt.Fprintf(cmd.ErrOrStderr(), "Open this in a browser on this machine:\n  %s\n", begun.URL)
	select {
	case a := <-got:
		if a.problem != "" {
			return auth.Tokens{}, skerry.Errorf(skerry.CodeUnauthorized, "the identity provider says %s", a.problem)
		}
		return client.EndOIDC(ctx, state, a.code, begun.Bind)
	case <-ctx.Done():
		return auth.Tokens{}, ctx.Err()
	}
}
