package bench

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

// wireguardCommand is the child process of a benchmark that is wireguard-go. It takes its configuration from its input, and
// says "up" when it works.
func wireguardCommand() *cobra.Command {
	return &cobra.Command{
		Use: "wireguard DEVICE MTU", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			mtu, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			conf, err := io.ReadAll(cmd.InOrStdin())
			if err != nil {
				return err
			}
			t, err := tun.CreateTUN(args[0], mtu)
			if err != nil {
				return fmt.Errorf("device %s: %w", args[0], err)
			}
			d := device.NewDevice(t, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
			defer d.Close()
			if err := d.IpcSet(string(conf)); err != nil {
				return err
			}
			if err := d.Up(); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "up")
			select {
			case <-d.Wait():
			case <-cmd.Context().Done():
			}
			return nil
		},
	}
}
