package ctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	sealing "filippo.io/age"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"skerry.dev/skerry"
	"skerry.dev/skerry/api"
	"skerry.dev/skerry/internal/s3"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/store"
)

func (a *app) volumeCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "volume", Aliases: []string{"volumes", "vol"},
		Short: "Copy local volumes, and restore, clone, export and import copies",
		Long: `Copy the local volumes of a replica, and restore, clone, export and import copies. This is done at a cluster: a root does not know
on which worker a volume is. A snapshot lies on the worker of its volume: export it, so that it survives the machine.

"skerry get volumes" and "skerry get snapshots" list what there is, and "skerry delete" deletes it.`,
		Example: `  skerry volume snapshot shop/db/0
  skerry volume restore shop-db-0-k3v9x2ma
  skerry volume export shop/db/0 --to age1… > db.snapshot
  skerry volume import shop/db/0 --identity key.txt --worker w2 < db.snapshot
  skerry volume restore shop-db-0-p7q2m4zc --worker w2
  skerry volume export shop/db/0 --to age1… s3://backups/shop/db.snapshot`}
	cmd.AddCommand(a.snapshotCommand(), a.snapshotsCommand(), a.restoreVolumeCommand(), a.cloneVolumeCommand(), a.exportCommand(),
		a.importCommand())
	return cmd
}

func (a *app) snapshotCommand() *cobra.Command {
	var pause time.Duration
	cmd := &cobra.Command{Use: "snapshot APP/SERVICE/REPLICA", Short: "Copy the local volumes of a replica, as they are at one moment",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeKind("volume"),
		Long: `Copy the local volumes of a replica, as they are at one moment, on their worker. The command in snapshots.before of the manifest runs
first. Then nothing can write until the files are cloned, where the worker's file system can do that (XFS, Btrfs), or copied.`,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			v, err := a.replicaVolumes(trimKind(args[0], "volume"))
			if err != nil {
				return err
			}
			s, err := c.TakeSnapshot(cmd.Context(), v, pause)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "snapshot/%s of volume %s: %s on worker %s%s\n", s.ID, v, s.Size, s.Worker, pausedText(&s))
			return nil
		})}
	cmd.Flags().DurationVar(&pause, "max-pause", 0, "how long its service may stand still (default 20s)")
	return cmd
}

func pausedText(s *spec.Snapshot) string {
	text := ""
	if s.Paused > 0 {
		text = fmt.Sprintf("; its service stood still for %s", time.Duration(s.Paused))
	}
	if s.Skipped > 0 {
		text += fmt.Sprintf("; %d sockets, pipes or devices were left out", s.Skipped)
	}
	return text
}

func listSnapshots(ctx context.Context, c *api.Client, q listQuery) ([]item, error) {
	list, err := c.Snapshots(ctx, q.namespace)
	var out []item
	for _, s := range list {
		if q.app != "" && s.App != q.app {
			continue
		}
		of := s.App + "/" + s.Service + "/" + fmt.Sprint(s.Replica)
		if q.all {
			of = s.Namespace + "/" + of
		}
		out = append(out, item{name: string(s.ID), value: s,
			cells: []string{string(s.ID), of, string(s.State), s.Size.String(), string(s.Worker), age(q.now, s.At)},
			wide:  []string{s.Org, s.How, takenBy(&s), s.Exported, s.SHA256}})
	}
	return out, err
}

func takenBy(s *spec.Snapshot) string {
	if s.Scheduled {
		return "schedule"
	}
	return s.Actor
}

func (a *app) snapshotsCommand() *cobra.Command {
	get := a.getCommand()
	return &cobra.Command{Use: "snapshots", Short: "List the snapshots; the same as skerry get snapshots", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			get.SetContext(cmd.Context())
			get.SetOut(cmd.OutOrStdout())
			get.SetErr(cmd.ErrOrStderr())
			return get.RunE(get, []string{"snapshots"})
		}}
}

func (a *app) restoreVolumeCommand() *cobra.Command {
	var worker string
	cmd := &cobra.Command{Use: "restore SNAPSHOT", Short: "Replace what volumes hold by a snapshot of them", Args: cobra.ExactArgs(1),
		ValidArgsFunction: a.completeKind("snapshot"),
		Long: `Replace what volumes hold by a snapshot of them. An instance that has the volumes is ended first, and started again afterwards.
With --worker the volumes are on that worker from then on, and the instance starts there: so a database survives its machine. If the
worker that had them comes back, it removes what it has. What was there before goes only when the snapshot is unpacked and checked.`,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			return restoreTo(cmd, c, args[0], spec.RestoreRequest{Worker: skerry.WorkerName(worker)}, "restored")
		})}
	cmd.Flags().StringVar(&worker, "worker", "", "where the volumes are to be (default: where they are)")
	return cmd
}

func (a *app) cloneVolumeCommand() *cobra.Command {
	var worker string
	cmd := &cobra.Command{Use: "clone SNAPSHOT APP/SERVICE/REPLICA", Short: "Make new volumes of a snapshot", Args: cobra.ExactArgs(2),
		ValidArgsFunction: a.completeKind("snapshot"),
		Long: `Make new volumes of a snapshot, in the same namespace. A service of that name, with volumes of the same names, finds them when it is
applied. Until then "skerry delete volume" deletes them.`,
		RunE: a.run(func(cmd *cobra.Command, c *api.Client, args []string) error {
			return restoreTo(cmd, c, args[0], spec.RestoreRequest{To: args[1], Worker: skerry.WorkerName(worker)}, "made")
		})}
	cmd.Flags().StringVar(&worker, "worker", "", "where the volumes are to be (default: where the snapshot is)")
	return cmd
}

func restoreTo(cmd *cobra.Command, c *api.Client, id string, r spec.RestoreRequest, word string) error {
	v, err := c.RestoreSnapshot(cmd.Context(), spec.SnapshotID(trimKind(id, "snapshot")), r)
	if err == nil {
		fmt.Fprintf(cmd.OutOrStdout(), "volume/%s %s on worker %s\n", v.Name, word, v.Worker)
	}
	return err
}

// sealFlags say what protects a file.
type sealFlags struct {
	passphrase bool
	passFile   string
}

func (f *sealFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&f.passphrase, "passphrase", false, what+" with the passphrase in $SKERRY_PASSPHRASE, otherwise prompt for it")
	cmd.Flags().StringVar(&f.passFile, "passphrase-file", "", what+" with the passphrase in a file")
}

// read gives the passphrase; "": none was asked for. stdin: it is not there that somebody types.
func (f *sealFlags) read(cmd *cobra.Command, stdin bool) (pass string, err error) {
	switch {
	case f.passFile == "" && cmd.Flags().Changed("passphrase-file"):
		return "", empty("--passphrase-file")
	case f.passFile != "":
		b, err := os.ReadFile(f.passFile)
		if err != nil {
			return "", skerry.Errorf(skerry.CodeInvalid, "--passphrase-file: %w", err)
		}
		pass = strings.TrimRight(string(b), "\r\n")
	case !f.passphrase:
		return "", nil
	default:
		if pass = os.Getenv("SKERRY_PASSPHRASE"); pass == "" {
			if stdin {
				return "", skerry.Errorf(skerry.CodeInvalid, "the passphrase cannot be typed where the file comes from").WithHint("set SKERRY_PASSPHRASE, or name the file")
			}
			if pass, err = AskSecret(cmd, "Passphrase of the snapshot: "); err != nil {
				return "", err
			}
		}
	}
	if pass == "" {
		return "", skerry.Errorf(skerry.CodeInvalid, "the passphrase is empty")
	}
	return pass, nil
}

func (a *app) exportCommand() *cobra.Command {
	var to []string
	var seal sealFlags
	var far s3.Config
	cmd := &cobra.Command{Use: "export SNAPSHOT|APP/SERVICE/REPLICA [FILE|s3://BUCKET/KEY]", Short: "Write a snapshot to a file, or to S3",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeKind("snapshot"),
		Long: `Write a snapshot to FILE, to standard output, or to an object of S3 or what speaks its protocol. Of a volume, a snapshot is
taken for that and deleted afterwards. Without --to and --passphrase it is not encrypted, and "zstd -dc FILE | tar -t" shows what is in
it. Encryption is that of age, on this machine.

` + s3Long + `

The object is uploaded in parts, which need some 50 MiB of memory (more above 140 GB) and no disk, and its SHA-256 lies beside it as
KEY.sha256. An upload that fails leaves no parts. Temporary credentials have to be valid until its end.`,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			recipients, err := recipientsOf(cmd, to, &seal)
			if err != nil {
				return err
			}
			out := ""
			if len(args) > 1 {
				out = args[1]
			} else if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
				return skerry.Errorf(skerry.CodeInvalid, "a snapshot is nothing for a terminal").WithHint("name a file, or write > FILE")
			}
			object, err := objectOf(out, far)
			if err != nil {
				return err
			}
			id := spec.SnapshotID(trimKind(args[0], "snapshot"))
			if strings.Contains(string(id), "/") {
				v, err := a.replicaVolumes(trimKind(args[0], "volume"))
				if err != nil {
					return err
				}
				s, err := client.TakeSnapshot(cmd.Context(), v, 0)
				if err != nil {
					return err
				}
				id = s.ID
				defer func() {
					if err := client.DeleteSnapshot(context.WithoutCancel(cmd.Context()), id); err != nil {
						fmt.Fprintf(cmd.ErrOrStderr(), "snapshot %s is left: %v\n", id, err)
					}
				}()
			}
			from, length, err := client.OpenSnapshot(cmd.Context(), id)
			if err != nil {
				return err
			}
			defer from.Close()
			if object != nil {
				return upload(cmd, object, from, length, recipients)
			}
			return writeWhole(cmd, out, from, recipients)
		})}
	cmd.Flags().StringSliceVar(&to, "to", nil, "age public key to encrypt to; may be repeated")
	seal.add(cmd, "encrypt")
	addS3(cmd, &far)
	return cmd
}

// empty refuses a flag that asks for protection and names none, as one from a variable that is not set: the file would be plain.
func empty(flag string) error {
	return skerry.Errorf(skerry.CodeInvalid, "%s is empty", flag).WithHint("give it a value, or leave it out if the file is to be plain")
}

func recipientsOf(cmd *cobra.Command, to []string, seal *sealFlags) (out []sealing.Recipient, err error) {
	if len(to) == 0 && cmd.Flags().Changed("to") {
		return nil, empty("--to")
	}
	for _, s := range to {
		r, err := sealing.ParseX25519Recipient(s)
		if err != nil {
			return nil, skerry.Errorf(skerry.CodeInvalid, "recipient %q: %w", s, err).WithHint("give an age public key, which starts with age1")
		}
		out = append(out, r)
	}
	pass, err := seal.read(cmd, false)
	if err != nil || pass == "" {
		return out, err
	}
	if len(out) > 0 {
		return nil, skerry.Errorf(skerry.CodeInvalid, "--to and a passphrase exclude each other")
	}
	r, err := store.PassphraseRecipient(pass)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeInvalid, "%w", err)
	}
	return []sealing.Recipient{r}, nil
}

// writeWhole writes a file that has its name only when all is in it; "" is the standard output.
func writeWhole(cmd *cobra.Command, name string, snapshot io.Reader, to []sealing.Recipient) error {
	from := &source{Reader: snapshot}
	what, left := name, noNewFile
	size, err := int64(0), error(nil)
	if name == "" {
		what, left = standardOutput, unusable
		size, err = sealTo(cmd.OutOrStdout(), from, to)
	} else {
		err = newFile(name, func(file io.Writer) (err error) {
			size, err = sealTo(file, from, to)
			return err
		})
	}
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "saved %d bytes\n", size)
		return nil
	}
	if why := from.err.Load(); why != nil {
		return skerry.Errorf(skerry.CodeUnavailable, "the snapshot cannot be read to its end: %w", *why).WithHint("try again; %s", left)
	}
	return notWritten("the snapshot", what, left, err)
}

func sealTo(out io.Writer, from io.Reader, to []sealing.Recipient) (int64, error) {
	if len(to) == 0 {
		return io.Copy(out, from)
	}
	w, err := sealing.Encrypt(out, to...)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(w, from)
	if err != nil {
		return n, err // without its end nobody takes it for whole
	}
	return n, w.Close()
}

func (a *app) importCommand() *cobra.Command {
	var worker, keyFile string
	var seal sealFlags
	var far s3.Config
	cmd := &cobra.Command{Use: "import APP/SERVICE/REPLICA [FILE|s3://BUCKET/KEY]", Short: "Make a snapshot of what export wrote",
		Args: cobra.RangeArgs(1, 2), ValidArgsFunction: a.completeKind("volume"),
		Long: `Make a snapshot of a replica's volumes, which need not be there, of FILE, of standard input or of an object of S3. All of it is
checked before it counts: what leads out of a volume, is no file, directory or link, or is larger than quota and disk allow, is
refused, and so is an object without the SHA-256 in KEY.sha256. "skerry volume restore" then brings it into its place, and "skerry
volume clone" under another name.

` + s3Long,
		RunE: a.run(func(cmd *cobra.Command, client *api.Client, args []string) error {
			volume, err := a.replicaVolumes(trimKind(args[0], "volume"))
			if err != nil {
				return err
			}
			in, name, length := cmd.InOrStdin(), "", int64(-1)
			if len(args) > 1 {
				name = args[1]
			}
			object, err := objectOf(name, far)
			if err != nil {
				return err
			}
			switch {
			case object != nil:
				from, size, err := object.Open(cmd.Context())
				if err != nil {
					return err
				}
				defer from.Close()
				in, length = from, size
			case name != "" && name != "-":
				f, err := os.Open(name)
				if err != nil {
					return skerry.Errorf(skerry.CodeNotFound, "%w", err)
				}
				defer f.Close()
				if st, err := f.Stat(); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
					length = st.Size()
				}
				in = f
			}
			if in, err = unseal(cmd, in, keyFile, &seal); err != nil {
				return err
			}
			if _, plain := in.(*bufio.Reader); !plain {
				length = -1 // what was sealed is shorter than the file
			}
			from := &source{Reader: in}
			s, err := client.ImportSnapshot(cmd.Context(), volume, worker, from, length)
			if why := from.err.Load(); why != nil {
				return *why // what the server says follows from it
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "snapshot/%s of volume %s: %s on worker %s\n", s.ID, volume, s.Size, s.Worker)
			return nil
		})}
	cmd.Flags().StringVar(&worker, "worker", "", "where the snapshot is to be (default: the worker with the most room)")
	cmd.Flags().StringVar(&keyFile, "identity", "", "file with the age private key that opens it")
	seal.add(cmd, "open it")
	addS3(cmd, &far)
	return cmd
}

// ageMagic is how a file begins that age wrote.
const ageMagic = "age-encryption.org/v1\n"

// unseal opens a file that is encrypted.
func unseal(cmd *cobra.Command, in io.Reader, keyFile string, seal *sealFlags) (io.Reader, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	head, err := b.Peek(len(ageMagic))
	if err != nil && err != io.EOF { // else it would be called a file that is not encrypted
		return nil, err
	}
	sealed := bytes.Equal(head, []byte(ageMagic))
	pass, err := seal.read(cmd, in == cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	asked := keyFile != "" || pass != ""
	switch {
	case !sealed && asked:
		return nil, skerry.Errorf(skerry.CodeInvalid, "the file is not encrypted").WithHint("import it without a key or passphrase, if it is yours")
	case !sealed:
		return b, nil
	case !asked:
		return nil, skerry.Errorf(skerry.CodeInvalid, "the file is encrypted").WithHint("add --identity FILE, or --passphrase")
	}
	var ids []sealing.Identity
	if keyFile != "" {
		f, err := os.Open(keyFile)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if ids, err = sealing.ParseIdentities(f); err != nil {
			return nil, fmt.Errorf("--identity %s: %w", keyFile, err)
		}
	} else {
		id, err := store.PassphraseIdentity(pass)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	out, err := sealing.Decrypt(b, ids...)
	if err != nil {
		return nil, skerry.Errorf(skerry.CodeForbidden, "the file cannot be opened: %w", err).WithHint("is it the right key or passphrase?")
	}
	return out, nil
}
