package ctl

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"skerry.dev/skerry"
)

// completionInstall adds `completion install` to what cobra makes.
func completionInstall(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, group := range root.Commands() {
		if group.Name() == "completion" {
			group.AddCommand(installCommand(root))
		}
	}
}

func installCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "install [bash|zsh|fish]", Short: "Install the completion for your shell", Args: cobra.MaximumNArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish"}, DisableFlagsInUseLine: true,
		Long: "Write the completion where your shell ($SHELL, if none is named) looks for it, below your home directory.",
		RunE: func(cmd *cobra.Command, args []string) error {
			shell := filepath.Base(os.Getenv("SHELL"))
			if len(args) == 1 {
				shell = args[0]
			}
			home, err := os.UserHomeDir()
			if err != nil {
				return err
			}
			data := os.Getenv("XDG_DATA_HOME")
			if data == "" {
				data = filepath.Join(home, ".local", "share")
			}
			config := os.Getenv("XDG_CONFIG_HOME")
			if config == "" {
				config = filepath.Join(home, ".config")
			}
			var text bytes.Buffer
			var file, then string
			switch shell {
			case "bash":
				file = filepath.Join(data, "bash-completion", "completions", "skerry")
				then = "it takes effect in new shells, if the package bash-completion is there"
				err = root.GenBashCompletionV2(&text, true)
			case "zsh":
				file = filepath.Join(data, "zsh", "site-functions", "_skerry")
				then = fmt.Sprintf("put `fpath=(%s $fpath)` before compinit in ~/.zshrc, if it is not there", filepath.Dir(file))
				err = root.GenZshCompletion(&text)
			case "fish":
				file, then = filepath.Join(config, "fish", "completions", "skerry.fish"), "it takes effect in new shells"
				err = root.GenFishCompletion(&text, true)
			default:
				return skerry.Errorf(skerry.CodeUnsupported, "there is no completion for the shell %q to install", shell).
					WithHint("name bash, zsh or fish; `skerry completion powershell` prints that of PowerShell")
			}
			if err != nil {
				return err
			}
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(file, text.Bytes(), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the completion for %s is in %s; %s\n", shell, file, then)
			return nil
		}}
}

func manCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "man DIRECTORY", Short: "Write the manual pages into a directory", Args: cobra.ExactArgs(1),
		Long:    "Write a manual page for each command into a directory, such as one of section 1 in MANPATH.",
		Example: "  skerry man ~/.local/share/man/man1 && man skerry-apply",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root.DisableAutoGenTag = true // the same program writes the same pages
			head := doc.GenManHeader{Title: "SKERRY", Section: "1", Source: "Skerry " + root.Version, Manual: "Skerry"}
			return doc.GenManTree(root, &head, args[0])
		}}
}
