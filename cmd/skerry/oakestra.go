package main

import (
	"log/slog"

	"github.com/spf13/pflag"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/api/oakestra"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/parents"
)

// oakestraFlags say where a root serves Oakestra's API.
type oakestraFlags struct {
	listen   string
	insecure bool
	admin    string
}

func (f *oakestraFlags) add(fs *pflag.FlagSet) {
	fs.StringVar(&f.listen, "oakestra-api", "",
		"address on which to serve Oakestra's API for oak-cli, such as 127.0.0.1:10000; in plain HTTP, so only on loopback (default: disabled)")
	fs.BoolVar(&f.insecure, "oakestra-api-insecure", false,
		"allow another address than loopback for --oakestra-api; passwords and tokens can then be read on the network")
	fs.StringVar(&f.admin, "oakestra-api-admin", "",
		"file with the user and the password of logins as Admin with the password Admin, which is all that the Python oak-cli sends; "+
			"only its owner may read it. Every program on this machine can then act as that user")
}

// check looks at what can be said before the API is there.
func (f *oakestraFlags) check(api string) error {
	switch {
	case f.listen == "" && (f.insecure || f.admin != ""):
		return skerry.Errorf(skerry.CodeInvalid, "--oakestra-api-insecure and --oakestra-api-admin are of --oakestra-api").
			WithHint("add --oakestra-api 127.0.0.1:10000")
	case f.listen != "" && api == "":
		return skerry.Errorf(skerry.CodeInvalid, "--oakestra-api stands on the API, which is disabled").WithHint("give --api an address")
	case f.insecure && f.admin != "":
		return skerry.Errorf(skerry.CodeInvalid, "--oakestra-api-admin is for this machine, and --oakestra-api-insecure lets in others").
			WithHint("leave out one of them; other clients than the Python oak-cli send a name and a password of yours")
	}
	return nil
}

// start serves Oakestra's API, if that is asked for.
func (f *oakestraFlags) start(svc *role.Service, on *parents.API, log *slog.Logger) error {
	if f.listen == "" {
		return nil
	}
	opt := oakestra.Options{API: on.Handler()}
	if f.admin != "" {
		opt.Admin = &oakestra.Login{}
		if err := ownFile("--oakestra-api-admin", f.admin, opt.Admin); err != nil {
			return err
		}
		if opt.Admin.User == "" || opt.Admin.Password == "" {
			return skerry.Errorf(skerry.CodeInvalid, "--oakestra-api-admin %s: user and password are needed", f.admin)
		}
	}
	s, err := api.NewServer(on.Handler(), api.Listen{Addr: f.listen, Plain: true, Insecure: f.insecure, Front: oakestra.New(opt)})
	if err == nil {
		err = s.Open()
	}
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "--oakestra-api: %w", err).
			WithHint("choose a free address on loopback, or allow others with --oakestra-api-insecure")
	}
	log.Info("clients of Oakestra are served", "url", s.URL())
	svc.Start("Oakestra's API", s.Run)
	return nil
}
