#!/bin/sh
# Adapter of `skerry bench orchestrator` for Oakestra, by the REST API of its root's system manager. It needs curl and jq.
#   OAKESTRA_URL                      of the system manager (default http://127.0.0.1:10000)
#   OAKESTRA_USER, OAKESTRA_PASSWORD  who deploys (default Admin, Admin, as Oakestra is installed)
set -u
url=${OAKESTRA_URL:-http://127.0.0.1:10000}

cannot() { echo "$1" >&2; exit 64; }
fail() { echo "$1" >&2; exit 1; }

login() {
	token=$(jq -n --arg u "${OAKESTRA_USER:-Admin}" --arg p "${OAKESTRA_PASSWORD:-Admin}" '{username: $u, password: $p}' |
		curl -sf --max-time 10 -H 'Content-Type: application/json' -d @- "$url/api/auth/login" | jq -r '.token // empty')
	[ -n "$token" ]
}

# Some of its answers are JSON within a string of JSON.
ask() { # METHOD PATH [BODY]
	curl -sf --max-time 60 -X "$1" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' ${3:+-d "$3"} "$url$2" |
		jq -c 'if type == "string" then (fromjson? // .) else . end'
}

app() { ask GET /api/applications/ | jq -r --arg n "$1" '.[] | select(.application_name == $n) | .applicationID'; }
services() { ask GET "/api/services/$1"; }

case "${1:-}" in
version | deploy | wait | delete)
	for tool in curl jq; do command -v $tool >/dev/null || cannot "$tool is not installed"; done
	login || cannot "no root orchestrator of Oakestra lets us in at $url"
	;;
esac
case "${1:-}" in
version) echo "Oakestra at $url" ;;
deploy)
	# Its names have 10 letters and digits at most; the last of ours differ.
	name=$(printf %s "$2" | tr -cd 'a-z0-9' | tail -c 10)
	sla=$(jq -n --arg n "$name" --arg i "$3" '{sla_version: "v2.0", customerID: "Admin", applications: [{applicationID: "", application_name: $n,
		application_namespace: "bench", application_desc: "", microservices: [{microserviceID: "", microservice_name: "web",
		microservice_namespace: "bench", virtualization: "container", code: $i, memory: 16, vcpus: 1, vgpus: 0, vtpus: 0,
		bandwidth_in: 0, bandwidth_out: 0, storage: 0, port: ""}]}]}')
	ask POST /api/application/ "$sla" >/dev/null || fail "the application was refused"
	id=$(app "$name")
	service=$(services "$id" | jq -er '.[0].microserviceID') || fail "the application has no service"
	n=0
	while [ $n -lt "$4" ]; do # each request makes one instance
		ask POST "/api/service/$service/instance" '{}' >/dev/null || fail "instance $n was refused"
		n=$((n + 1))
	done
	;;
wait)
	id=$(app "$(printf %s "$2" | tr -cd 'a-z0-9' | tail -c 10)")
	end=$(($(date +%s) + $4))
	while
		ready=$(services "$id" | jq '[.[].instance_list[]? | select(.status == "RUNNING" or .status == "ACTIVE")] | length')
		[ "${ready:-0}" -lt "$3" ]
	do
		[ "$(date +%s)" -lt "$end" ] || fail "${ready:-0} of $3 run after $4 s"
		sleep 0.05
	done
	;;
delete)
	id=$(app "$(printf %s "$2" | tr -cd 'a-z0-9' | tail -c 10)")
	[ -z "$id" ] || ask DELETE "/api/application/$id" >/dev/null || fail "it was not deleted"
	;;
processes)
	# The orchestrators are containers of Docker.
	command -v docker >/dev/null || cannot "docker, which the orchestrators run in, is not here"
	for name in $(docker ps --format '{{.Names}}' | grep -E 'system_manager|cluster_manager|scheduler|mongo|mqtt|resource_abstractor|jwt|service_manager'); do
		docker top "$name" -eo pid | sed -n '2,$s/^ *\([0-9][0-9]*\).*/control \1/p'
	done
	for dir in /proc/[0-9]*; do
		program=$(readlink "$dir/exe" 2>/dev/null) || continue
		case "${program##*/}" in
		NodeEngine | nodeengined | NetManager | netmanagerd) echo "worker ${dir#/proc/}" ;;
		esac
	done
	;;
pipeline | statistics) cannot "this adapter knows nothing of examples/video" ;;
*) echo "usage: deploy NAME IMAGE REPLICAS | wait NAME REPLICAS SECONDS | delete NAME | processes | version" >&2; exit 1 ;;
esac
