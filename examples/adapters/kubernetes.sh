#!/bin/sh
# Adapter of `skerry bench orchestrator` for Kubernetes and what speaks its API, such as K3s and MicroK8s; KUBECONFIG says which. A report
# calls an adapter by its file: link this one as k3s.sh for K3s.
#   KUBECTL  the command line (default kubectl; "k3s kubectl" works)
set -u
kubectl=${KUBECTL:-kubectl}

cannot() { echo "$1" >&2; exit 64; }

case "${1:-}" in
version | deploy | wait | delete) command -v "${kubectl%% *}" >/dev/null || cannot "${kubectl%% *} is not installed" ;;
esac
case "${1:-}" in
version)
	text=$($kubectl version --request-timeout=10s 2>/dev/null | sed -n 's/^Server Version: *//p')
	[ -n "$text" ] || cannot "no server of Kubernetes answers"
	echo "Kubernetes $text"
	;;
deploy)
	$kubectl apply -f - >/dev/null <<-END
		apiVersion: apps/v1
		kind: Deployment
		metadata: {name: $2}
		spec:
		  replicas: $4
		  selector: {matchLabels: {app: $2}}
		  template:
		    metadata: {labels: {app: $2}}
		    spec:
		      terminationGracePeriodSeconds: 10
		      containers:
		      - {name: web, image: "$3", resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}}
	END
	;;
wait) $kubectl rollout status "deployment/$2" --timeout="$4s" >/dev/null ;;
delete)
	$kubectl delete deployment "$2" --ignore-not-found --cascade=foreground >/dev/null || exit
	$kubectl wait pod -l "app=$2" --for=delete --timeout=600s >/dev/null
	;;
processes)
	# K3s has its server, and the agent in it, in one process, which counts as control.
	for dir in /proc/[0-9]*; do
		program=$(readlink "$dir/exe" 2>/dev/null) || continue
		pid=${dir#/proc/}
		case "${program##*/}" in
		kube-apiserver | kube-scheduler | kube-controller-manager | etcd | kubelite) echo "control $pid" ;;
		kubelet | kube-proxy | containerd | containerd-shim* | crio | conmon | flanneld | coredns) echo "worker $pid" ;;
		k3s*)
			case "$(tr '\0' ' ' <"$dir/cmdline") " in
			*"k3s server "*) echo "control $pid" ;;
			*"k3s agent "*) echo "worker $pid" ;;
			esac
			;;
		esac
	done
	;;
pipeline | statistics) cannot "this adapter knows nothing of examples/video" ;;
*) echo "usage: deploy NAME IMAGE REPLICAS | wait NAME REPLICAS SECONDS | delete NAME | processes | version" >&2; exit 1 ;;
esac
