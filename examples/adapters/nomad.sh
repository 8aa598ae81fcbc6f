#!/bin/sh
# Adapter of `skerry bench orchestrator` for HashiCorp Nomad with its Docker driver. It speaks to the agent that NOMAD_ADDR names.
set -u

cannot() { echo "$1" >&2; exit 64; }

# Running allocations of a job. Those that it had before are still listed until Nomad collects them.
running() { nomad job allocs -t '{{range .}}{{if eq .ClientStatus "running"}}{{println .ID}}{{end}}{{end}}' "$1" 2>/dev/null | grep -c .; }

case "${1:-}" in
version | deploy | wait | delete) command -v nomad >/dev/null || cannot "nomad is not installed" ;;
esac
case "${1:-}" in
version)
	nomad server members >/dev/null 2>&1 || cannot "no server of Nomad answers at ${NOMAD_ADDR:-http://127.0.0.1:4646}"
	nomad version | head -n 1
	;;
deploy)
	nomad job run -detach - >/dev/null <<-END
		job "$2" {
		  group "web" {
		    count = $4
		    task "web" {
		      driver = "docker"
		      config { image = "$3" }
		      resources {
		        cpu        = 10
		        memory     = 16
		        memory_max = 64
		      }
		    }
		  }
		}
	END
	;;
wait)
	end=$(($(date +%s) + $4))
	while [ "$(running "$2")" -lt "$3" ]; do
		[ "$(date +%s)" -lt "$end" ] || { echo "$(running "$2") of $3 run after $4 s" >&2; exit 1; }
		sleep 0.05
	done
	;;
delete)
	out=$(nomad job stop -purge "$2" 2>&1) || case $out in
	*"No job(s) with prefix or"*) ;; # a deployment that failed may never have become one
	*) echo "$out" >&2; exit 1 ;;
	esac
	while [ "$(running "$2")" -gt 0 ]; do sleep 0.05; done
	;;
processes)
	# An agent that is server and client in one counts as control.
	for dir in /proc/[0-9]*; do
		program=$(readlink "$dir/exe" 2>/dev/null) || continue
		[ "${program##*/}" = nomad ] || continue
		case "$(tr '\0' ' ' <"$dir/cmdline") " in
		*" agent "*"-client "* | *" executor "* | *" logmon "* | *" docker_logger "*) echo "worker ${dir#/proc/}" ;;
		*" agent "*) echo "control ${dir#/proc/}" ;;
		esac
	done
	;;
pipeline | statistics) cannot "this adapter knows nothing of examples/video" ;;
*) echo "usage: deploy NAME IMAGE REPLICAS | wait NAME REPLICAS SECONDS | delete NAME | processes | version" >&2; exit 1 ;;
esac
