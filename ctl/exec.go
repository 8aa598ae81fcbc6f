package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/ctl/console"
	"skerry.dev/skerry/internal/execstream"
)

func (a *app) execCommand() *cobra.Command {
	var opt api.ExecOptions
	cmd := &cobra.Command{Use: "exec INSTANCE|APP/SERVICE -- COMMAND [ARG...]", Short: "Run a command inside an instance",
		Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeLogs,
		Long:    "Run a command inside an instance, or inside a ready instance of a service. The exit status is that of the command.",
		Example: "  skerry exec -it shop/front -- sh\n  skerry exec front-x5b2k -- cat /etc/hosts",
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			i, err := a.oneInstance(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			if opt.Command = args[1:]; opt.Command[0] == "--" {
				opt.Command = opt.Command[1:]
			}
			if len(opt.Command) == 0 {
				return skerry.Errorf(skerry.CodeInvalid, "the command is missing").WithHint("write it after --, such as -- sh")
			}
			return execIn(cmd, c, i.ID, opt)
		})}
	fs := cmd.Flags()
	fs.BoolVarP(&opt.Stdin, "stdin", "i", false, "pass on standard input")
	fs.BoolVarP(&opt.TTY, "tty", "t", false, "allocate a terminal for the command")
	fs.StringVarP(&opt.Container, "container", "c", "", "init or sidecar container, instead of the main one")
	fs.StringVarP(&opt.User, "user", "u", "", "user or user:group, instead of the container's")
	fs.StringSliceVarP(&opt.Env, "env", "e", nil, "environment variable NAME=VALUE; may be repeated")
	fs.SetInterspersed(false) // what comes after the instance belongs to the command
	return cmd
}

// execIn runs a command and ends with its status. The terminal is as before whatever happens.
func execIn(cmd *cobra.Command, client *api.Client, id skerry.InstanceID, opt api.ExecOptions) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	in, isFile := cmd.InOrStdin().(*os.File)
	terminal := opt.TTY && opt.Stdin && isFile && term.IsTerminal(int(in.Fd()))
	if opt.TTY && os.Getenv("TERM") != "" {
		opt.Env = append([]string{"TERM=" + os.Getenv("TERM")}, opt.Env...)
	}
	conn, closer, err := client.Exec(ctx, id, opt)
	if err != nil {
		return err
	}
	defer closer.Close()
	stop := context.AfterFunc(ctx, func() { closer.Close() })
	defer stop()
	if terminal {
		old, err := term.MakeRaw(int(in.Fd()))
		if err != nil {
			return err
		}
		defer term.Restore(int(in.Fd()), old)
	}
	if opt.TTY {
		stopResize := sendSizes(conn)
		defer stopResize()
	}
	if opt.Stdin {
		go func() {
			// It ends with the process: a blocked read of a terminal cannot be ended otherwise.
			if _, err := io.Copy(conn.Writer(execstream.Stdin), cmd.InOrStdin()); err == nil {
				conn.Write(execstream.StdinEOF, nil)
			}
		}()
	}
	res, err := readExec(conn, console.Raw(cmd.OutOrStdout()), console.Raw(cmd.ErrOrStderr())) // the program's own terminal
	return ended(cmd.Context(), id, res, err)
}

// ended says how a command inside an instance ended.
func ended(ctx context.Context, id skerry.InstanceID, res execstream.Result, err error) error {
	switch {
	case ctx.Err() != nil:
		return &console.Exit{Code: 130}
	case err != nil:
		return skerry.Errorf(skerry.CodeUnavailable, "the connection to %s was lost before the command ended: %w", id, err).
			WithHint("`skerry get instances` shows whether it is still running")
	case res.Error != "":
		return &console.Exit{Code: res.Code, Err: skerry.Errorf(skerry.CodeInvalid, "%s", res.Error).WithHint("%s", res.Hint)}
	case res.Code != 0:
		return &console.Exit{Code: res.Code}
	}
	return nil
}

// readExec writes what the command writes until it ends.
func readExec(conn *execstream.Conn, out, errOut io.Writer) (res execstream.Result, err error) {
	for {
		t, p, err := conn.Read()
		if err != nil {
			return res, err
		}
		switch t {
		case execstream.Stdout:
			_, err = out.Write(p)
		case execstream.Stderr:
			_, err = errOut.Write(p)
		case execstream.Exit:
			if json.Unmarshal(p, &res) != nil {
				return res, errors.New("unreadable response")
			}
			return res, nil
		}
		if err != nil {
			return res, err
		}
	}
}

// sendSize tells the size of our terminal.
func sendSize(conn *execstream.Conn) {
	for _, f := range []*os.File{os.Stdout, os.Stdin, os.Stderr} {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil {
			conn.WriteJSON(execstream.Resize, execstream.Size{Rows: uint16(h), Cols: uint16(w)})
			return
		}
	}
}
