#!/bin/sh
# Makes the root of an image: Debian with what the shop of the operator's day runs, as Debian ships it: packages.sh OUTPUT MIRROR.
set -eu
mmdebstrap --mode=root --variant=minbase --skip=cleanup/tmp \
	--include=postgresql-15,redis-server,mosquitto,nginx-light,gunicorn,python3-flask,python3-psycopg2,python3-redis,python3-paho-mqtt \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='APT::Sandbox::User "root"' --aptopt='APT::Install-Recommends "false"' \
	bookworm "$1/root" "deb $2 bookworm main"
rm -rf "$1"/root/var/cache/apt/* "$1"/root/var/lib/apt/lists/* "$1"/root/var/lib/postgresql/15/* "$1"/root/tmp/* "$1"/root/dev/*
