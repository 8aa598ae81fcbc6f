#!/bin/sh
# Installs Skerry out of a release, which is a directory or an https address: the program into /usr/local/bin, the systemd units beside it. It
# starts nothing. Every file has to be as SHA256SUMS says; with --key, SHA256SUMS has to be signed by the release's key.
#
#   sh install.sh [--worker] [--key release.pub] [--root DIR] RELEASE
#
#   --worker     the agent alone, for small boards
#   --key FILE   public key of the release (PEM); without it, the address has to be https, and whoever can write there is trusted
#   --root DIR   install below DIR, as for the image of a device
set -eu
umask 022
fail() {
	echo "install: $*" >&2
	exit 1
}
name=skerry key="" root="" release=""
while [ $# -gt 0 ]; do
	case $1 in
	--worker) name=skerry-worker ;;
	--key | --root)
		[ $# -gt 1 ] || fail "$1 needs a value"
		[ "$1" = --key ] && key=$2 || root=$2
		shift
		;;
	-h | --help)
		sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
		exit
		;;
	-*) fail "$1 is no flag; --help lists them" ;;
	*) [ -z "$release" ] && release=${1%/} || fail "one release at a time: $1" ;;
	esac
	shift
done
[ -n "$release" ] || fail "say which release: a directory, or an https address"
[ "$(uname -s)" = Linux ] || fail "this installs on Linux; for $(uname -s), take the program out of the release"
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
riscv64) arch=riscv64 ;;
armv7l | armv8l)
	arch=arm
	[ $name = skerry-worker ] || fail "this board of 32 bits can be a worker: --worker"
	;;
*) fail "there is no Skerry for $(uname -m)" ;;
esac
[ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "this needs root, or --root DIR"
[ ! -e "$root/usr/bin/skerry" ] || fail "a package has installed $root/usr/bin/skerry; upgrade or remove that"
[ -z "$key" ] || [ -r "$key" ] || fail "$key cannot be read"

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
get() { # FILE
	case $release in
	https://* | http://*)
		if command -v curl >/dev/null; then
			# Without a key, no answer may lead to where the way is open.
			[ -n "$key" ] && schemes=http,https || schemes=https
			curl -fsSL --proto-redir "=$schemes" --retry 3 -o "$tmp/$1" "$release/$1" || fail "$release/$1 cannot be fetched"
		elif [ -n "$key" ] && command -v wget >/dev/null; then
			wget -q -O "$tmp/$1" "$release/$1" || fail "$release/$1 cannot be fetched"
		else
			fail "there is no curl (with --key, wget does, too); copy the release here, and name its directory"
		fi
		;;
	*) cp "$release/$1" "$tmp/$1" || fail "$release has no $1" ;;
	esac
}
case $release in http://*) [ -n "$key" ] || fail "anybody on the way can change what comes by http; use https, or --key" ;; esac

get SHA256SUMS
if [ -n "$key" ]; then
	command -v openssl >/dev/null || fail "there is no openssl, which checks the signature"
	get SHA256SUMS.sig
	base64 -d "$tmp/SHA256SUMS.sig" >"$tmp/signature" 2>/dev/null || fail "SHA256SUMS.sig is no signature"
	openssl dgst -sha256 -verify "$key" -signature "$tmp/signature" "$tmp/SHA256SUMS" >/dev/null 2>&1 ||
		fail "SHA256SUMS is not signed by the key in $key"
fi
# skerry-VERSION-linux-ARCH.tar.gz, of which skerry-worker's is none.
archive=$(sed -n "s/^[0-9a-f]\{64\}  \($name-[A-Za-z0-9._+~-]*-linux-$arch\.tar\.gz\)\$/\1/p" "$tmp/SHA256SUMS" |
	{ [ $name = skerry-worker ] && cat || grep -v '^skerry-worker-' || true; })
[ -n "$archive" ] || fail "the release has no $name for $arch"
[ "$(echo "$archive" | wc -l)" = 1 ] || fail "the directory has several releases: $(echo "$archive" | tr '\n' ' ')"
get "$archive"
(cd "$tmp" && grep "  $archive\$" SHA256SUMS | sha256sum --check --status) || fail "$archive is not what SHA256SUMS says"
tar -C "$tmp" -xzf "$tmp/$archive" --no-same-owner
dir=$tmp/${archive%.tar.gz}
"$dir/$name" version >/dev/null 2>&1 || fail "the program of $archive does not run on this machine"

bin=$root/usr/local/bin units=$root/usr/local/lib/systemd/system
mkdir -p "$bin" "$units"
install -m 0755 "$dir/$name" "$bin/.skerry.new"
install -m 0644 "$dir"/systemd/* "$units"
mv "$bin/.skerry.new" "$bin/skerry" # also while it runs
echo "$bin/skerry: $archive"
[ -z "$root" ] || exit 0
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	for unit in skerry skerry-root skerry-cluster skerry-worker; do
		! systemctl --quiet is-active $unit || echo "$unit runs the program of before; go over to the new one: systemctl restart $unit"
	done
fi
command -v crun >/dev/null || command -v runc >/dev/null || echo "containers need crun, which is not installed"
command -v conmon >/dev/null || echo "containers need conmon, which is not installed"
[ $name = skerry-worker ] || echo "all of Skerry on this machine: skerry up --service"
