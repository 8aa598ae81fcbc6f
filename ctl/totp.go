package ctl

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"skerry.dev/skerry/api"
)

// totpCommand is for one's own one-time codes; an admin resets those of others.
func (a *app) totpCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "totp", Short: "Manage one-time codes (TOTP) for your logins"}
	enable := &cobra.Command{Use: "enable", Short: "Make your logins ask for a one-time code; your other sessions end", Args: cobra.NoArgs,
		Long: `Make your logins ask for a code of an authenticator app, beside the password. The command asks for your password, shows
the secret for the app, and asks for the first code. Then it prints recovery codes, each of which works once in place of a
code: keep them apart from the device. Access tokens and sessions of programs are not affected.`,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
			password, err := AskSecret(cmd, "Password: ")
			if err != nil {
				return err
			}
			s, err := client.EnrolTOTP(cmd.Context(), password)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Add this to your authenticator app:\n  secret  %s\n  link    %s\n", s.Secret, s.URI)
			code, err := AskSecret(cmd, codePrompt)
			if err != nil {
				return err
			}
			r, err := client.ConfirmTOTP(cmd.Context(), code)
			if err != nil {
				return err
			}
			fmt.Fprintln(cmd.ErrOrStderr(), "Your logins ask for codes from now on. Store these recovery codes now: they are not shown again.")
			fmt.Fprintln(cmd.OutOrStdout(), strings.Join(r.Codes, "\n"))
			return nil
		})}
	disable := &cobra.Command{Use: "disable", Short: "Make your logins ask for the password alone", Args: cobra.NoArgs,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, _ []string) error {
			password, err := AskSecret(cmd, "Password: ")
			if err != nil {
				return err
			}
			code, err := AskSecret(cmd, codePrompt)
			if err != nil {
				return err
			}
			if err := client.RemoveTOTP(cmd.Context(), password, code); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "your logins ask for the password alone")
			return nil
		})}
	cmd.AddCommand(enable, disable)
	return cmd
}

const codePrompt = "One-time code: "

// resetTOTPCommand is a part of the commands for users.
func (a *app) resetTOTPCommand() *cobra.Command {
	return &cobra.Command{Use: "reset-totp NAME", Short: "Disable the one-time codes of a user who has lost the device",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("user"),
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			if err := c.ResetTOTP(cmd.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "user/%s logs in with the password alone\n", args[0])
			return nil
		})}
}
