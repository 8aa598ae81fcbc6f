package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"skerry.dev/skerry"
)

// Command makes the command lab with all below it.
func Command() *cobra.Command {
	c := &command{}
	cmd := &cobra.Command{Use: "lab", Short: "Try a whole federation on this machine, and break it",
		Long: `A lab is a federation on one machine: hosts are network namespaces, each with its own address, data directory and cgroup, connected by
links with delay, loss and rate. A file describes the hosts and their roles.

Commands find a lab by name; if there is only one lab on the machine, you can omit its name.`}
	cmd.PersistentFlags().StringVar(&c.o.Dir, "lab-dir", DefaultDir, "directory for state that a reboot may delete")
	cmd.PersistentFlags().StringVar(&c.o.Data, "lab-data", DefaultData, "directory for the data of the hosts")
	cmd.PersistentFlags().StringVarP(&c.name, "lab", "L", "", "name of the lab")
	cmd.AddCommand(c.up(), c.down(), c.list(), c.status(), c.exec(), c.partition(), c.heal(), c.set(), c.kill(), c.start(), c.powerOff(),
		c.logs(), wanCommand())
	return cmd
}

type command struct {
	o    Options
	name string
}

// lab opens the lab that was named, or the only one.
func (c *command) lab() (*Lab, error) {
	if c.name == "" {
		c.name = os.Getenv("LAB")
	}
	if c.name == "" {
		names, err := List(c.o)
		if err != nil {
			return nil, err
		}
		switch len(names) {
		case 0:
			return nil, skerry.Errorf(skerry.CodeNotFound, "there is no lab on this machine").WithHint("`skerry lab up FILE` makes one")
		case 1:
			c.name = names[0]
		default:
			return nil, skerry.Errorf(skerry.CodeInvalid, "there are several labs: %s", strings.Join(names, ", ")).WithHint("name one with --lab")
		}
	}
	return Open(c.name, c.o)
}

func (c *command) up() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{Use: "up FILE", Short: "Make a lab and start every role in it", Args: cobra.ExactArgs(1),
		Long: `Make a lab from a topology file and start every role in it. The command returns when all are connected; the lab stays until
` + "`skerry lab down`." + ` After an error, everything that was made is removed again.`,
		Example: "  skerry lab up examples/labs/demo.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := Load(args[0])
			if err != nil {
				return err
			}
			c.o.Log = func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", args...) }
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			l, err := Up(ctx, t, c.o)
			if err != nil {
				return err
			}
			st, err := l.Status(ctx)
			if err != nil {
				return err
			}
			printStatus(cmd.OutOrStdout(), &st)
			return nil
		}}
	cmd.Flags().DurationVar(&timeout, "timeout", 3*time.Minute, "give up after this time")
	return cmd
}

func (c *command) down() *cobra.Command {
	var all bool
	cmd := &cobra.Command{Use: "down [LAB]", Short: "End a lab and remove everything that belongs to it", Args: cobra.MaximumNArgs(1),
		Long: "End a lab and remove everything that belongs to it: processes, namespaces, mounts, cgroups, files. It also works on an incomplete lab, and can be repeated.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var names []string
			var err error
			switch {
			case all:
				names, err = List(c.o)
			case len(args) > 0:
				names = args
			case c.name != "":
				names = []string{c.name}
			default:
				if names, err = List(c.o); len(names) > 1 {
					return skerry.Errorf(skerry.CodeInvalid, "there are several labs: %s", strings.Join(names, ", ")).WithHint("name one, or give --all")
				}
			}
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), time.Minute)
			defer cancel()
			for _, name := range names {
				if err := Down(ctx, name, c.o); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "lab %s is gone\n", name)
			}
			return nil
		}}
	cmd.Flags().BoolVar(&all, "all", false, "end every lab")
	return cmd
}

func (c *command) list() *cobra.Command {
	return &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the labs on this machine", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names, err := List(c.o)
			for _, n := range names {
				fmt.Fprintln(cmd.OutOrStdout(), n)
			}
			return err
		}}
}

func (c *command) status() *cobra.Command {
	var output string
	cmd := &cobra.Command{Use: "status", Short: "Show hosts, roles and links", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := c.lab()
			if err != nil {
				return err
			}
			st, err := l.Status(cmd.Context())
			if err != nil {
				return err
			}
			switch output {
			case "json":
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(st)
			case "":
				printStatus(cmd.OutOrStdout(), &st)
				return nil
			}
			return skerry.Errorf(skerry.CodeInvalid, "-o %q is not known", output).WithHint("use json, or leave it away")
		}}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json for programs")
	return cmd
}

func printStatus(out io.Writer, st *Status) {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "HOST\tROLE\tADDRESS\tSTATE\tAGENT\tPROCESSES\tINSTANCES")
	for _, h := range st.Hosts {
		agent, instances := "-", "-"
		if h.Running {
			agent = strconv.Itoa(h.Agent)
		}
		if h.Role == RoleWorker && h.Status != nil {
			instances = strconv.Itoa(len(h.Status.Instances))
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", h.Name, h.Role, h.Address, h.State(), agent, h.Processes, instances)
	}
	tw.Flush()
	for _, h := range st.Hosts {
		if h.Role != RoleNAT {
			continue
		}
		var inside []string
		for _, b := range st.Hosts {
			if b.Behind == h.Name {
				inside = append(inside, b.Name)
			}
		}
		fmt.Fprintf(out, "nat %s: %s, behind it %s\n", h.Name, h.NAT, cmp.Or(strings.Join(inside, ", "), "nobody"))
	}
	for _, l := range st.Links {
		what := l.Host
		if what == "" {
			what = strings.Join(l.Between, " - ")
		}
		fmt.Fprintf(out, "link %s: delay %s, jitter %s, loss %s", what, time.Duration(l.Delay), time.Duration(l.Jitter), l.Loss)
		if l.Duplicate > 0 || l.Reorder > 0 {
			fmt.Fprintf(out, ", duplicate %s, reorder %s", l.Duplicate, l.Reorder)
		}
		if l.Rate > 0 {
			fmt.Fprintf(out, ", rate %s", l.Rate)
		}
		fmt.Fprintln(out)
	}
	for _, w := range st.Cut {
		fmt.Fprintf(out, "cut: %s -> %s\n", w.From, w.To)
	}
	if p := st.Packets; p != nil {
		fmt.Fprintf(out, "shaped packets: %d, lost %d, dropped %d, waiting %d\n", p.Packets, p.Lost, p.Dropped, p.Waiting)
	}
	if !st.Whole {
		fmt.Fprintf(out, "the lab is not whole: it is being made, or that was interrupted; `skerry lab down %s` removes it\n", st.Name)
	}
}

func (c *command) exec() *cobra.Command {
	cmd := &cobra.Command{Use: "exec HOST -- COMMAND...", Short: "Run a command in a host", Args: cobra.MinimumNArgs(2),
		Long: `Run a command in a host, in its network, mount and UTS namespaces and its cgroup. The exit status is the command's.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := c.lab()
			if err != nil {
				return err
			}
			argv := args[1:]
			if argv[0] == "--" && len(argv) > 1 {
				argv = argv[1:]
			}
			if argv[0] == "skerry" {
				argv = append([]string{l.Binary}, argv[1:]...) // the program that made the lab
			}
			run := exec.Command(argv[0], argv[1:]...)
			run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			status, err := l.Exec(cmd.Context(), args[0], run)
			if err == nil && status != 0 {
				os.Exit(status)
			}
			return err
		}}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// sides reads the arguments of commands on two sides.
func (c *command) sides(use, short string, run func(l *Lab, ctx context.Context, a, b string, oneWay bool) error) *cobra.Command {
	var oneWay bool
	cmd := &cobra.Command{Use: use + " A B", Short: short, Args: cobra.ExactArgs(2),
		Long: short + ". A side is a host, or CLUSTER/* for a cluster with its workers.",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := c.lab()
			if err != nil {
				return err
			}
			return run(l, cmd.Context(), args[0], args[1], oneWay)
		}}
	cmd.Flags().BoolVar(&oneWay, "one-way", false, "only packets from A to B")
	return cmd
}

func (c *command) partition() *cobra.Command {
	return c.sides("partition", "Drop all packets between two sides", (*Lab).Partition)
}

func (c *command) heal() *cobra.Command {
	return c.sides("heal", "End the partition between two sides", (*Lab).Heal)
}

func (c *command) set() *cobra.Command {
	var delay, jitter time.Duration
	var loss, twice, reorder, rate, nat, cpu string
	cmd := &cobra.Command{Use: "set HOST [HOST]", Short: "Change a host's cable or processors, the path between two sides, or a NAT",
		Args:    cobra.RangeArgs(1, 2),
		Example: "  skerry lab set w1 --rate 2mbit\n  skerry lab set root 'harbour/*' --delay 40ms --loss 1%\n  skerry lab set home --nat symmetric\n  skerry lab set w1 --cpu 0.3",
		RunE: func(cmd *cobra.Command, args []string) error {
			var ch LinkChange
			if cmd.Flags().Changed("delay") {
				ch.Delay = &delay
			}
			if cmd.Flags().Changed("jitter") {
				ch.Jitter = &jitter
			}
			for _, f := range []struct {
				flag, text string
				to         **Share
			}{{"--loss", loss, &ch.Loss}, {"--duplicate", twice, &ch.Duplicate}, {"--reorder", reorder, &ch.Reorder}} {
				if f.text == "" {
					continue
				}
				v, err := ParseShare(f.text)
				if err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "%s: %w", f.flag, err)
				}
				*f.to = &v
			}
			if rate != "" {
				v, err := ParseRate(rate)
				if err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "--rate: %w", err)
				}
				ch.Rate = &v
			}
			if delay < 0 || jitter < 0 {
				return skerry.Errorf(skerry.CodeInvalid, "a delay is zero or more")
			}
			if ch == (LinkChange{}) && nat == "" && cpu == "" {
				return skerry.Errorf(skerry.CodeInvalid, "nothing is to be changed").
					WithHint("give --delay, --jitter, --loss, --duplicate, --reorder, --rate, --cpu or --nat")
			}
			if (nat != "" || cpu != "") && len(args) > 1 {
				return skerry.Errorf(skerry.CodeInvalid, "--nat and --cpu are of one host")
			}
			var processors skerry.MilliCPU
			if cpu != "" && cpu != "all" {
				var err error
				if processors, err = skerry.ParseMilliCPU(cpu); err != nil {
					return skerry.Errorf(skerry.CodeInvalid, "--cpu: %w", err)
				}
			}
			l, err := c.lab()
			if err != nil {
				return err
			}
			if cpu != "" {
				if err := l.SetCPU(args[0], processors); err != nil || nat == "" && ch == (LinkChange{}) {
					return err
				}
			}
			if nat != "" {
				if err := l.SetNAT(cmd.Context(), args[0], NAT(nat)); err != nil || ch == (LinkChange{}) {
					return err
				}
			}
			return l.SetLink(cmd.Context(), args, ch)
		}}
	cmd.Flags().DurationVar(&delay, "delay", 0, "delay in each direction")
	cmd.Flags().DurationVar(&jitter, "jitter", 0, "largest deviation of a delay from --delay")
	cmd.Flags().StringVar(&loss, "loss", "", "share of lost packets, such as 1%")
	cmd.Flags().StringVar(&twice, "duplicate", "", "share of packets that arrive twice")
	cmd.Flags().StringVar(&reorder, "reorder", "", "share of packets that are overtaken by those of the next 10 ms")
	cmd.Flags().StringVar(&rate, "rate", "", "rate of a host's cable, such as 10mbit; 0 for no limit")
	cmd.Flags().StringVar(&cpu, "cpu", "", "limit the host to this share of the processors until it is switched off, whatever capacity it reports, such as 0.5 or 250m; under version 1 of cgroups an instance with a higher limit does not start then; all: as before")
	cmd.Flags().StringVar(&nat, "nat", "", "replace a NAT with one of this kind: full-cone, restricted, port-restricted, symmetric or udp-blocked")
	return cmd
}

func (c *command) kill() *cobra.Command {
	var signal string
	cmd := &cobra.Command{Use: "kill HOST", Short: "Kill the agent of a host; its instances keep running", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			name := strings.ToUpper(signal)
			sig := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG"))
			if n, err := strconv.Atoi(signal); err == nil && n > 0 && n < 65 {
				sig = syscall.Signal(n)
			}
			if sig == 0 {
				return skerry.Errorf(skerry.CodeInvalid, "--signal %q is not a signal", signal).WithHint("use a name such as TERM, or a number")
			}
			l, err := c.lab()
			if err != nil {
				return err
			}
			return l.Kill(args[0], sig)
		}}
	cmd.Flags().StringVarP(&signal, "signal", "s", "KILL", "signal to send")
	return cmd
}

func (c *command) start() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{Use: "start HOST", Short: "Start the role of a host again, and the host if it is off", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := c.lab()
			if err != nil {
				return err
			}
			if err := l.Start(cmd.Context(), args[0]); err != nil || timeout == 0 {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return l.Await(ctx, args[0])
		}}
	cmd.Flags().DurationVar(&timeout, "wait", time.Minute, "time to wait until it is connected; 0 does not wait")
	return cmd
}

func (c *command) powerOff() *cobra.Command {
	return &cobra.Command{Use: "poweroff HOST", Short: "End everything in a host at once, like a power failure", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := c.lab()
			if err != nil {
				return err
			}
			return l.PowerOff(cmd.Context(), args[0])
		}}
}

func (c *command) logs() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "logs HOST", Short: "Show the log of a host's role", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := c.lab()
			if err != nil {
				return err
			}
			name, err := l.LogFile(args[0])
			if err != nil {
				return err
			}
			f, err := os.Open(name)
			if err != nil {
				return skerry.Errorf(skerry.CodeNotFound, "%s has logged nothing", args[0])
			}
			defer f.Close()
			for {
				if _, err := io.Copy(cmd.OutOrStdout(), f); err != nil || !follow {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(200 * time.Millisecond):
				}
			}
		}}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep running and show new lines")
	return cmd
}

// wanCommand runs in the namespace between the hosts. People do not call it.
func wanCommand() *cobra.Command {
	var queue uint16
	var socket string
	cmd := &cobra.Command{Use: "wan", Short: "Delay and drop packets between hosts", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return WanMain(cmd.Context(), queue, socket) }}
	cmd.Flags().Uint16Var(&queue, "queue", queueNum, "number of the packet queue")
	cmd.Flags().StringVar(&socket, "socket", "", "socket on which shapes are set")
	return cmd
}
