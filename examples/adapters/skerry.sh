#!/bin/sh
# Adapter of `skerry bench orchestrator` for Skerry. It uses the context of the command line that is in use, so log in first.
#   SKERRY       the command line (default skerry)
#   SKERRY_PORT  a TCP port that an instance is to accept connections at before it counts as ready; without one, the command line watches for
#                two seconds whether it goes on running
#   SKERRY_PIDS  processes of the roles on this machine, as control:PID and worker:PID, where more run here than are to be measured
set -u
skerry=${SKERRY:-skerry}

cannot() { echo "$1" >&2; exit 64; }

# What a role started belongs to it: the process of the data plane, and conmon, which goes by the worker's cgroups and has no parent left.
# The program of an instance does not.
kind_of() { # PID
	[ "$1" != $$ ] || return 0
	program=$(readlink "/proc/$1/exe" 2>/dev/null) || return 0
	words=$(tr '\0' ' ' <"/proc/$1/cmdline" 2>/dev/null) || return 0
	case "${program##*/}" in
	skerry*)
		words=${words#* }
		case "${words%% *}" in
		up | root | cluster) [ -n "${SKERRY_PIDS:-}" ] || echo "control $1" ;;
		worker) [ -n "${SKERRY_PIDS:-}" ] || echo "worker $1" ;;
		datapath | plugin-shim) echo "worker $1" ;;
		esac
		;;
	conmon) echo "worker $1" ;;
	esac
}

case "${1:-}" in
version | deploy | wait | delete | pipeline | statistics) command -v "$skerry" >/dev/null || cannot "$skerry is not installed" ;;
esac
case "${1:-}" in
version)
	"$skerry" whoami >/dev/null 2>&1 || cannot "no server of Skerry answers, or nobody is logged in (skerry login)"
	"$skerry" version | sed -n 's/^Client: */Skerry /p'
	;;
deploy)
	"$skerry" apply --no-wait -f - >/dev/null <<-END
		apiVersion: skerry/v1
		kind: Application
		metadata: {name: $2}
		spec:
		  services:
		  - {name: web, image: "$3", replicas: $4, resources: {cpu: 10m, memory: 16Mi, limits: {cpu: 1, memory: 64Mi}}${SKERRY_PORT:+, probes: {readiness: {tcp: {port: $SKERRY_PORT\}\}\}}}
	END
	;;
wait) "$skerry" wait "$2" --for ready --timeout "$4s" >/dev/null ;;
pipeline)
	manifest=$(dirname "$0")/../video/video.yaml
	sed -e "s|^metadata: .*|metadata: {name: $2}|" -e "s|image: .*|image: \"$3\"|" "$manifest" | "$skerry" apply -f - --timeout 2m >/dev/null
	;;
statistics) "$skerry" logs "$2/track" | tail -n 1 ;;
delete) "$skerry" delete app "$2" --ignore-not-found --wait >/dev/null ;;
processes)
	for one in ${SKERRY_PIDS:-}; do echo "${one%%:*} ${one##*:}"; done
	for dir in /proc/[0-9]*; do kind_of "${dir#/proc/}"; done
	;;
*) echo "usage: deploy NAME IMAGE REPLICAS | wait NAME REPLICAS SECONDS | delete NAME | processes | version | pipeline NAME IMAGE | statistics NAME" >&2; exit 1 ;;
esac
