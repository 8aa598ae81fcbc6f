package agent

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/upgrade"
	"skerry.dev/skerry/spec"
)

// upgradeRequest asks a worker to try another program.
type upgradeRequest struct {
	Path   string        `json:"path"`
	Window spec.Duration `json:"window,omitempty"`
	Steady spec.Duration `json:"steady,omitempty"`
}

// upgradeCommand is for people on the device itself.
func upgradeCommand() *cobra.Command {
	var data string
	var noWait bool
	var window, steady time.Duration
	cmd := &cobra.Command{Use: "upgrade PROGRAM", Short: "Upgrade the agent on this device, with automatic rollback", Args: cobra.ExactArgs(1),
		Long: `Upgrade the agent on this device to PROGRAM, another version of skerry. The new program runs on trial, supervised by the old
one: within --window, it must reach the cluster, and every runtime and instance that worked before must work, for --steady
without interruption. If it passes, the device keeps it, also across reboots, until another program is installed by hand. If it
exits, hangs or does worse, the old program takes over again with its own state. Instances and their connections are not
affected.`,
		Example: "  skerry worker upgrade ./skerry-v2\n  skerry worker status",
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if window < 0 || steady < 0 || steady > window {
				return skerry.Errorf(skerry.CodeInvalid, "--steady %s has to be within --window %s", steady, window)
			}
			var p upgrade.Program
			q := upgradeRequest{Path: path, Window: spec.Duration(window), Steady: spec.Duration(steady)}
			began := time.Now()
			if err := role.CallLocal(cmd.Context(), data, "POST", "/upgrade", q, &p); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "%s is on trial for at most %s\n", p.Version, window)
			if noWait {
				return nil
			}
			// Between two programs nobody answers, and with what the store was put back nothing tells when that ends.
			for time.Since(began) < window+5*time.Minute {
				select {
				case <-cmd.Context().Done():
					return cmd.Context().Err()
				case <-time.After(300 * time.Millisecond):
				}
				var st role.Status
				err := role.CallLocal(cmd.Context(), data, "GET", "/status", nil, &st)
				if err != nil || st.Programs == nil || st.Programs.Trial != nil || st.Programs.Last == nil || st.Programs.Last.At.Before(began) {
					continue
				}
				if l := st.Programs.Last; !l.Passed {
					return skerry.Errorf(skerry.CodeConflict, "%s failed its trial: %s", l.Version, l.Why).
						WithHint("%s took over again; see the agent's log", l.From)
				}
				fmt.Fprintf(out, "%s passed its trial and is now the agent's program\n", p.Version)
				return nil
			}
			return skerry.Errorf(skerry.CodeUnavailable, "the outcome of the upgrade is not known").WithHint("`skerry worker status` shows it")
		}}
	cmd.Flags().StringVar(&data, "data", filepath.Join(role.DefaultData(), "worker"), "data directory of the worker")
	cmd.Flags().DurationVar(&window, "window", upgrade.Window, "time within which the new program must pass")
	cmd.Flags().DurationVar(&steady, "steady", upgrade.Steady, "how long it must work without interruption")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the outcome")
	return cmd
}
