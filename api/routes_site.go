package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"skerry.dev/skerry"
	"skerry.dev/skerry/auth"
	"skerry.dev/skerry/spec"
	"skerry.dev/skerry/view"
	"skerry.dev/skerry/wire"
)

// JoinToken is a token for a cluster or worker as the API shows it: never the secret.
type JoinToken struct {
	ID      string         `json:"id"`
	Role    wire.Tier      `json:"role"`
	Name    string         `json:"name,omitempty" doc:"The only name that may join with this token."`
	Replace bool           `json:"replace,omitempty"`
	By      string         `json:"by,omitempty"`
	Created time.Time      `json:"created"`
	Expires time.Time      `json:"expires"`
	Used    *auth.TokenUse `json:"used,omitempty"`
}

func joinToken(t auth.JoinToken) JoinToken {
	return JoinToken{ID: t.ID, Role: t.Tier, Name: t.Name, Replace: t.Replace, By: t.By, Created: t.Created, Expires: t.Expires, Used: t.Used}
}

// NewJoinToken is a join token with its text, which is shown once.
type NewJoinToken struct {
	JoinToken
	Text string `json:"text" doc:"The token, for --join of the new cluster or worker. It is not shown again."`
}

// JoinTokenRequest asks for a join token.
type JoinTokenRequest struct {
	Role    wire.Tier     `json:"role" enum:"cluster,worker,successor"`
	Name    string        `json:"name,omitempty" maxLength:"63" doc:"The only name that may join with this token."`
	TTL     spec.Duration `json:"ttl,omitempty" doc:"Default: 1h; at most 720h."`
	Replace bool          `json:"replace,omitempty" doc:"Let a reinstalled device take over the name of an enrolled one."`
}

// Member is an enrolled cluster or worker.
type Member struct {
	Role       wire.Tier        `json:"role"`
	Name       string           `json:"name"`
	Key        string           `json:"key" doc:"SHA-256 of its public key."`
	Machine    string           `json:"machine"`
	Joined     time.Time        `json:"joined"`
	Issued     time.Time        `json:"issued"`
	Expires    time.Time        `json:"expires" doc:"When its certificate expires. It is renewed automatically."`
	Quarantine *auth.Quarantine `json:"quarantine,omitempty" doc:"A second machine was seen using this identity."`
}

func (h *Handler) addSite() {
	add(h, operation{ID: "list-clusters", Method: http.MethodGet, Path: "/v1/clusters", Scope: auth.ScopeClustersRead, Object: objEach,
		Tag: "clusters", At: wire.TierRoot, Summary: "List the clusters, as aggregates."},
		func(ctx context.Context, who *auth.Principal, _ *none) (*listAnswer[view.ClusterView], error) {
			list, err := h.opt.Backend.Clusters(ctx)
			return seen(list, err, func(c *view.ClusterView) bool { return who.May(auth.ScopeClustersRead, "", string(c.Name)) })
		})
	type ClusterPath struct {
		Cluster string `path:"cluster" maxLength:"63"`
	}
	add(h, operation{ID: "get-cluster", Method: http.MethodGet, Path: "/v1/clusters/{cluster}", Scope: auth.ScopeClustersRead,
		Object: objCluster, Tag: "clusters", At: wire.TierRoot, Summary: "Show a cluster."},
		func(ctx context.Context, _ *auth.Principal, in *ClusterPath) (*answer[view.ClusterView], error) {
			list, err := h.opt.Backend.Clusters(ctx)
			for _, c := range list {
				if string(c.Name) == in.Cluster {
					return &answer[view.ClusterView]{c}, nil
				}
			}
			if err == nil {
				err = skerry.Errorf(skerry.CodeNotFound, "there is no cluster %q", in.Cluster).WithHint("`skerry get clusters` lists them")
			}
			return nil, err
		})
	addBare(h, operation{ID: "delete-cluster", Method: http.MethodDelete, Path: "/v1/clusters/{cluster}", Scope: auth.ScopeClusterAdmin,
		Object: objCluster, Tag: "clusters",
		At: wire.TierRoot, Summary: "Remove a disconnected cluster and revoke its key.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *ClusterPath) (*none, error) {
			return nil, h.opt.Backend.RemoveChild(ctx, in.Cluster, who.User)
		})
	addBare(h, operation{ID: "trust-cluster", Method: http.MethodPut, Path: "/v1/clusters/{cluster}/trust", Scope: auth.ScopeClusterAdmin,
		Object: objCluster, Tag: "clusters", At: wire.TierRoot,
		Summary: "Trust a cluster again: clear the marks against it and end its quarantine.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *ClusterPath) (*none, error) {
			return nil, h.opt.Backend.TrustCluster(ctx, in.Cluster)
		})
	type clusterHoldIn struct {
		ClusterPath
		Body struct {
			Reason string `json:"reason" maxLength:"200" doc:"Why the cluster is cordoned. Empty uncordons it."`
		}
	}
	addBare(h, operation{ID: "hold-cluster", Method: http.MethodPut, Path: "/v1/clusters/{cluster}/hold", Scope: auth.ScopeClusterAdmin,
		Object: objCluster, Tag: "clusters", At: wire.TierRoot,
		Summary: "Cordon or uncordon a cluster. Uncordoning also ends a drain and a quarantine, and its claims are trusted again.",
		Status:  http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *clusterHoldIn) (*none, error) {
			return nil, h.opt.Backend.CordonCluster(ctx, in.Cluster, in.Body.Reason)
		})
	type clusterDrainIn struct {
		ClusterPath
		Body view.ClusterDrainRequest
	}
	addBare(h, operation{ID: "drain-cluster", Method: http.MethodPut, Path: "/v1/clusters/{cluster}/drain", Scope: auth.ScopeClusterAdmin,
		Object: objCluster, Tag: "clusters", At: wire.TierRoot,
		Summary: "Drain a cluster: cordon it and move the root's instances to other clusters, each once its copy there is ready. " +
			"Uncordoning the cluster ends the drain.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *clusterDrainIn) (*none, error) {
			return nil, h.opt.Backend.DrainCluster(ctx, in.Cluster, in.Body)
		})
	type clusterLabelsIn struct {
		ClusterPath
		Body view.ClusterLabels
	}
	addBare(h, operation{ID: "label-cluster", Method: http.MethodPatch, Path: "/v1/clusters/{cluster}/labels", Scope: auth.ScopeClusterAdmin,
		Object: objCluster, Tag: "clusters", At: wire.TierRoot,
		Summary: "Set and remove labels of a cluster. Manifests select clusters by them (placement.clusterLabels).",
		Status:  http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *clusterLabelsIn) (*none, error) {
			return nil, h.opt.Backend.LabelCluster(ctx, in.Cluster, in.Body)
		})
	h.addWorkers()
	addHistory(h)
	addGrants(h)
	addUpgrades(h)
	addClusterWorkers(h)
	h.addTokens()
	h.addMembers()
}

// holdRequest cordons or uncordons a worker.
type holdRequest struct {
	Reason string `json:"reason" maxLength:"200" doc:"Why the worker is cordoned. Empty uncordons it."`
}

func (h *Handler) addWorkers() {
	add(h, operation{ID: "list-workers", Method: http.MethodGet, Path: "/v1/workers", Scope: auth.ScopeWorkersRead, Object: objSite,
		Tag: "workers", At: wire.TierCluster, Grant: wire.GrantWorkers, Summary: "List the workers."},
		func(ctx context.Context, _ *auth.Principal, in *PageIn) (*pageAnswer[view.WorkerView], error) {
			list, err := h.opt.Backend.Workers(ctx)
			if err != nil {
				return nil, err
			}
			return pageOf("/v1/workers", *in, list, func(w *view.WorkerView) string { return string(w.Name) })
		})
	type WorkerPath struct {
		Worker string `path:"worker" maxLength:"63"`
	}
	add(h, operation{ID: "get-worker", Method: http.MethodGet, Path: "/v1/workers/{worker}", Scope: auth.ScopeWorkersRead, Object: objSite,
		Tag: "workers", At: wire.TierCluster, Grant: wire.GrantWorkers, Summary: "Show a worker."},
		func(ctx context.Context, _ *auth.Principal, in *WorkerPath) (*answer[view.WorkerView], error) {
			list, err := h.opt.Backend.Workers(ctx)
			for _, w := range list {
				if string(w.Name) == in.Worker {
					return &answer[view.WorkerView]{w}, nil
				}
			}
			if err == nil {
				err = skerry.Errorf(skerry.CodeNotFound, "there is no worker %q", in.Worker).WithHint("`skerry get workers` lists them")
			}
			return nil, err
		})
	add(h, operation{ID: "worker-overlay", Method: http.MethodGet, Path: "/v1/workers/{worker}/overlay", Scope: auth.ScopeWorkersRead,
		Object: objSite, Tag: "workers", At: wire.TierCluster, Grant: wire.GrantWorkers,
		Summary: "Return a worker's overlay paths to other workers."},
		func(ctx context.Context, _ *auth.Principal, in *WorkerPath) (*answer[view.OverlayView], error) {
			v, err := h.opt.Backend.WorkerOverlay(ctx, in.Worker)
			return &answer[view.OverlayView]{v}, err
		})
	addBare(h, operation{ID: "delete-worker", Method: http.MethodDelete, Path: "/v1/workers/{worker}", Scope: auth.ScopeWorkersWrite,
		Object: objSite, Tag: "workers",
		At: wire.TierCluster, Summary: "Remove a disconnected worker and revoke its key.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *WorkerPath) (*none, error) {
			return nil, h.opt.Backend.RemoveChild(ctx, in.Worker, who.User)
		})
	type drainIn struct {
		WorkerPath
		Body view.DrainRequest
	}
	addBare(h, operation{ID: "drain-worker", Method: http.MethodPut, Path: "/v1/workers/{worker}/drain", Scope: auth.ScopeWorkersWrite,
		Object: objSite, Tag: "workers", At: wire.TierCluster, Grant: wire.GrantDrain,
		Summary: "Drain a worker: cordon it and move its instances away, each once its copy elsewhere is ready. Uncordoning the " +
			"worker ends the drain.", Status: http.StatusAccepted, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *drainIn) (*none, error) {
			return nil, h.opt.Backend.DrainWorker(ctx, in.Worker, in.Body)
		})
	add(h, operation{ID: "list-unadmitted", Method: http.MethodGet, Path: "/v1/unadmitted", Scope: auth.ScopeWorkersRead, Object: objSite,
		Tag: "workers", Summary: "List running instances and existing grants that the present security policy would refuse, restrict or ignore."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[view.Unadmitted], error) {
			list, err := h.opt.Backend.Unadmitted(ctx)
			return listOf(list), err
		})
	type rebalanceIn struct {
		Body struct {
			DryRun bool `json:"dryRun,omitempty" doc:"Show what would move without moving it."`
		}
	}
	add(h, operation{ID: "rebalance", Method: http.MethodPost, Path: "/v1/rebalance", Scope: auth.ScopeWorkersWrite, Object: objSite,
		Tag: "workers", At: wire.TierCluster,
		Summary: "Move instances to clearly better workers, one at a time, each once its copy is ready; or show what would move.", Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *rebalanceIn) (*answer[view.RebalancePlan], error) {
			p, err := h.opt.Backend.Rebalance(ctx, in.Body.DryRun)
			return &answer[view.RebalancePlan]{p}, err
		})
	type upgradeIn struct {
		WorkerPath
		Body view.UpgradeRequest
	}
	addBare(h, operation{ID: "upgrade-worker", Method: http.MethodPut, Path: "/v1/workers/{worker}/upgrade", Scope: auth.ScopeWorkersWrite,
		Object: objSite, Tag: "workers", At: wire.TierCluster, Grant: wire.GrantUpgrade,
		Summary: "Upgrade a worker's agent, with automatic rollback. Progress is reported in the worker's facts.",
		Status:  http.StatusAccepted, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *upgradeIn) (*none, error) {
			return nil, h.opt.Backend.UpgradeWorker(ctx, in.Worker, in.Body)
		})
	type holdIn struct {
		WorkerPath
		Body holdRequest
	}
	addBare(h, operation{ID: "hold-worker", Method: http.MethodPut, Path: "/v1/workers/{worker}/hold", Scope: auth.ScopeWorkersWrite,
		Object: objSite, Tag: "workers", At: wire.TierCluster, Grant: wire.GrantDrain,
		Summary: "Cordon or uncordon a worker. Uncordoning also ends a drain and a quarantine, and its claims are trusted again.",
		Status:  http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *holdIn) (*none, error) {
			return nil, h.opt.Backend.CordonWorker(ctx, in.Worker, in.Body.Reason)
		})
}

func (h *Handler) addTokens() {
	add(h, operation{ID: "list-tokens", Method: http.MethodGet, Path: "/v1/tokens",
		Scope: auth.ScopeTokensAdmin, Object: objSite, Tag: "join tokens",
		Summary: "List the join tokens, newest first."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[JoinToken], error) {
			list, err := h.opt.Backend.Authority().Tokens(ctx)
			out := []JoinToken{}
			for _, t := range list {
				out = append(out, joinToken(t))
			}
			return listOf(out), err
		})
	type createIn struct{ Body JoinTokenRequest }
	add(h, operation{ID: "create-token", Method: http.MethodPost, Path: "/v1/tokens", Scope: auth.ScopeTokensAdmin, Object: objSite,
		Tag: "join tokens", Summary: "Create a one-time join token for a cluster or worker.", Status: http.StatusCreated, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *createIn) (*answer[NewJoinToken], error) {
			callOf(ctx).object = string(in.Body.Role) + "/" + in.Body.Name
			text, t, err := h.opt.Backend.Authority().CreateToken(ctx,
				auth.TokenOptions{Tier: in.Body.Role, TTL: time.Duration(in.Body.TTL), Name: in.Body.Name, Replace: in.Body.Replace, By: who.User})
			return &answer[NewJoinToken]{NewJoinToken{joinToken(t), text}}, err
		})
	type idIn struct {
		ID string `path:"id" maxLength:"63"`
	}
	addBare(h, operation{ID: "delete-token", Method: http.MethodDelete, Path: "/v1/tokens/{id}", Scope: auth.ScopeTokensAdmin, Object: objSite,
		Tag: "join tokens", Summary: "Delete a join token; members that joined with it stay.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *idIn) (*none, error) {
			return nil, h.opt.Backend.Authority().DeleteToken(ctx, in.ID)
		})
}

func (h *Handler) addMembers() {
	add(h, operation{ID: "list-members", Method: http.MethodGet, Path: "/v1/members", Scope: auth.ScopeMembersAdmin, Object: objSite,
		Tag: "members", Summary: "List the enrolled clusters or workers."},
		func(ctx context.Context, _ *auth.Principal, _ *none) (*listAnswer[Member], error) {
			out := []Member{}
			for _, e := range h.opt.Backend.Authority().List() {
				out = append(out, Member{Role: e.Tier, Name: e.Name, Key: e.Key, Machine: e.Machine, Joined: e.Joined, Issued: e.Issued,
					Expires: e.Expires, Quarantine: e.Quarantine})
			}
			return listOf(out), nil
		})
	type MemberPath struct {
		Name string `path:"name" maxLength:"63"`
	}
	type revokeIn struct {
		MemberPath
		Reason string `query:"reason" maxLength:"200"`
	}
	// child gives the role of a member by its name; of a worker and a successor of one name it is the worker's.
	child := func(name string) wire.Tier {
		if h.opt.Backend.Tier() == wire.TierRoot {
			return wire.TierCluster
		}
		out := wire.TierWorker
		for _, e := range h.opt.Backend.Authority().List() {
			if e.Name == name && e.Tier == wire.TierWorker {
				return e.Tier
			}
			if e.Name == name {
				out = e.Tier
			}
		}
		return out
	}
	addBare(h, operation{ID: "revoke-member", Method: http.MethodDelete, Path: "/v1/members/{name}", Scope: auth.ScopeMembersAdmin,
		Object: objSite, Tag: "members",
		Summary: "Permanently revoke the key of a cluster or worker and close its connection.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, who *auth.Principal, in *revokeIn) (*none, error) {
			err := h.opt.Backend.Authority().Revoke(ctx, child(in.Name), in.Name, who.User, strings.TrimSpace(in.Reason))
			// Also after an error: the write may be kept, and whoever is enrolled still comes back.
			h.opt.Backend.Disconnect(in.Name)
			return nil, err
		})
	addBare(h, operation{ID: "release-member", Method: http.MethodPost, Path: "/v1/members/{name}/release", Scope: auth.ScopeMembersAdmin,
		Object: objSite, Tag: "members",
		Summary: "End the quarantine of a member once the machine that copied its identity is gone.", Status: http.StatusNoContent, Audit: true},
		func(ctx context.Context, _ *auth.Principal, in *MemberPath) (*none, error) {
			return nil, h.opt.Backend.Authority().Release(ctx, child(in.Name), in.Name)
		})
}
