#!/bin/sh
# Adapter of `skerry bench orchestrator` for Docker Swarm. It speaks to the manager that `docker` speaks to.
set -u

cannot() { echo "$1" >&2; exit 64; }

# Tasks of a service that run, of those that it should have, as 3/10; nothing if there is no such service.
replicas() { docker service ls --filter "name=$1" --format '{{.Name}} {{.Replicas}}' | sed -n "s|^$1 ||p"; }

containers() { docker ps --all --quiet --filter "label=com.docker.swarm.service.name=$1"; }

case "${1:-}" in
version | deploy | wait | delete) command -v docker >/dev/null || cannot "docker is not installed" ;;
esac
case "${1:-}" in
version)
	[ "$(docker info --format '{{.Swarm.ControlAvailable}}' 2>/dev/null)" = true ] || cannot "no manager of a swarm answers; docker swarm init makes one"
	echo "Docker Swarm $(docker version --format '{{.Server.Version}}')"
	;;
deploy)
	docker service create --detach --quiet --name "$2" --replicas "$4" --limit-cpu 1 --limit-memory 64M --reserve-cpu 0.01 --reserve-memory 16M "$3" >/dev/null
	;;
wait)
	end=$(($(date +%s) + $4))
	while [ "$(replicas "$2")" != "$3/$3" ]; do
		[ "$(date +%s)" -lt "$end" ] || { echo "$(replicas "$2") run after $4 s" >&2; exit 1; }
		sleep 0.05
	done
	;;
delete)
	out=$(docker service rm "$2" 2>&1) || case $out in
	*[Nn]"o such service"* | *"not found"*) ;; # a deployment that failed may never have become one
	*) echo "$out" >&2; exit 1 ;;
	esac
	while [ -n "$(containers "$2")" ]; do sleep 0.05; done
	;;
processes)
	# A daemon that is manager and worker in one counts as control.
	for dir in /proc/[0-9]*; do
		program=$(readlink "$dir/exe" 2>/dev/null) || continue
		case "${program##*/}" in
		dockerd) echo "control ${dir#/proc/}" ;;
		containerd | containerd-shim* | docker-proxy) echo "worker ${dir#/proc/}" ;;
		esac
	done
	;;
pipeline | statistics) cannot "this adapter knows nothing of examples/video" ;;
*) echo "usage: deploy NAME IMAGE REPLICAS | wait NAME REPLICAS SECONDS | delete NAME | processes | version" >&2; exit 1 ;;
esac
