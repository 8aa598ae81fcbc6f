// Package pods is a worker whose machine is a node of a Kubernetes cluster: what the site assigns to it runs as pods that are bound to the
// node. It owns the translation between both, and one connection to the API server for all nodes. It decides nothing about an instance:
// restarts, tokens and what the site is told are worker/core's, as for every worker. It does not create nodes, and never deletes a pod by
// force. Only the places that put roles together import it.
//
//	Fleet ── mirrors nodes and pods (list, watch) ── one Worker for each node that is schedulable
//	Worker ── worker/core ── actions ──► pods: each attempt to start an instance is one pod, which Kubernetes never restarts
//	   ▲                                  │
//	   └──── Started, Exited, Probed ◄── Look, at the pod's status
package pods
