// Command skerry-kubernetes makes each node of a Kubernetes cluster a worker of a site: what the site places there runs as pods. It is a
// program of its own, so that `skerry` does not grow by a client for Kubernetes. docs/KUBERNETES-CLUSTER.md says how to use it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"skerry.dev/skerry"
	"skerry.dev/skerry/artifact/imageref"
	"skerry.dev/skerry/cmd/internal/role"
	"skerry.dev/skerry/internal/node"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/worker/pods"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version = "dev"

func main() { os.Exit(role.Main(command(), os.Args[1:])) }

// flags are what the program is told.
type flags struct {
	common     role.CommonFlags
	clusters   []string
	tokens     string
	connection pods.Connection
	style      pods.Style
	nodes      map[string]string
	hostPorts  string
	patience   time.Duration
}

func command() *cobra.Command {
	var given flags
	cmd := &cobra.Command{
		Use: "skerry-kubernetes", Short: "Make each node of a Kubernetes cluster a worker of a site", Args: cobra.NoArgs,
		Version: version, SilenceErrors: true, SilenceUsage: true,
		Long: `Make each node of a Kubernetes cluster a worker of a site: what the site places there runs as pods on that node.

Every flag can also be set by an environment variable: --cluster is SKERRY_CLUSTER. SIGTERM stops the program; pods keep running, and
it finds them again when it starts. Only one may run for a site and a namespace of Kubernetes.`,
		Example: "  skerry-kubernetes --cluster harbour.example.com --tokens /etc/skerry/tokens --kubeconfig admin.conf --namespace skerry",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := role.FromEnv(cmd); err != nil {
				return err
			}
			return run(cmd.Context(), &given)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&given.common.Data, "data", filepath.Join(role.DefaultData(), "kubernetes"),
		"data directory, with a directory for each node's worker; keep it")
	given.common.AddLog(fs)
	fs.StringSliceVar(&given.clusters, "cluster", nil,
		"address of the cluster orchestrator, HOST or HOST:PORT (port 7444 by default); may be repeated")
	fs.StringVar(&given.tokens, "tokens", "",
		"file with join tokens for workers, one a line; each node that is new takes one that is not used yet, and the file is read again for it")
	fs.StringVar(&given.connection.Kubeconfig, "kubeconfig", "",
		"file that says how to reach Kubernetes (default KUBECONFIG, else the service account of the pod that this runs in)")
	fs.StringVar(&given.connection.Context, "kube-context", "", "context of that file (default its current one)")
	fs.StringVar(&given.style.Namespace, "namespace", "",
		"namespace of Kubernetes for the pods (default that of the context or the service account)")
	fs.StringToStringVar(&given.nodes, "nodes", nil, "labels of the nodes that become workers, KEY=VALUE,... (default all that run Linux)")
	fs.StringVar(&given.hostPorts, "host-ports", "20000-22767",
		"host ports that are chosen for services that leave the choice; keep them out of the range of node ports")
	fs.StringVar(&given.style.Registry, "registry", "", "registry, HOST or HOST/PREFIX, of images whose name has none (default docker.io)")
	fs.StringVar(&given.style.PullSecret, "pull-secret", "", "secret of the namespace with which images are pulled")
	fs.StringVar(&given.style.StorageClass, "storage-class", "",
		"storage class of the claims for local volumes (default the default one of Kubernetes)")
	fs.StringVar(&given.style.Priority, "priority-class", "", "priority class of the pods")
	fs.DurationVar(&given.patience, "unschedulable-after", 30*time.Second, "time after which a pod that finds no place on its node has failed")
	return cmd
}

// ports reads FIRST-LAST.
func ports(text string) (first, last int, err error) {
	a, b, ok := strings.Cut(text, "-")
	first, err1 := strconv.Atoi(a)
	last, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || first < 1 || last > 65535 || first > last {
		return 0, 0, skerry.Errorf(skerry.CodeInvalid, "--host-ports %q is no range of ports", text).WithHint("write it as 20000-22767")
	}
	return first, last, nil
}

func run(ctx context.Context, given *flags) error {
	common, err := given.common.Common(version)
	if err != nil {
		return err
	}
	if len(given.clusters) == 0 {
		return skerry.Errorf(skerry.CodeInvalid, "--cluster is missing").
			WithHint("give the address of the cluster orchestrator, HOST or HOST:PORT")
	}
	if err := role.MustDir(common.Dir); err != nil {
		return err
	}
	first, last, err := ports(given.hostPorts)
	if err != nil {
		return err
	}
	client, namespace, err := pods.Connect(given.connection)
	if err != nil {
		return skerry.Errorf(skerry.CodeInvalid, "%w", err).WithHint("give --kubeconfig FILE, or run this in a pod with a service account")
	}
	if given.style.Namespace == "" {
		given.style.Namespace = namespace
	}
	if given.style.Namespace == "" {
		return skerry.Errorf(skerry.CodeInvalid, "--namespace is missing").WithHint("give a namespace of Kubernetes for the pods")
	}
	if r := given.style.Registry; r != "" {
		if _, err := imageref.Parse(r + "/x"); err != nil {
			return skerry.Errorf(skerry.CodeInvalid, "--registry %q: %w", r, err)
		}
	}
	for k, v := range given.nodes {
		if err := spec.CheckLabel(k, v); err != nil {
			return err
		}
	}
	s := role.NewService(common.Log)
	o := &opener{common: common, tokens: given.tokens, parents: role.HostPorts(given.clusters, "7444"), boot: node.Boot(),
		spent: map[string]bool{}}
	if given.style.Site, err = o.site(); err != nil {
		return err
	}
	fleet := pods.NewFleet(pods.Options{Client: client, Style: given.style, Version: version, Nodes: given.nodes,
		FirstPort: first, LastPort: last, Patience: given.patience, Open: o.open, Addrs: func() []string { return o.parents }, Boot: o.boot, Log: common.Log})
	s.Start("fleet", fleet.Run)
	return s.Run(ctx, fmt.Sprintf("nodes of Kubernetes work, with pods in namespace %s", given.style.Namespace))
}
