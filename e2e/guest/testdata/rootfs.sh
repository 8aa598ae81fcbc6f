#!/bin/sh
# Makes the guest's root disk and kernel: rootfs.sh OUTPUT SOURCES AGENT-DIRECTORY [PACKAGE...], where SOURCES are lines for
# apt. It is Debian as a worker would have it, less what is not used here; its packages are checked by apt as always.
set -eu
out=$1 sources=$2 agent=$3
shift 3
root=$out/root
mmdebstrap --mode=root --variant=essential --skip=cleanup/tmp \
	--include=systemd-sysv,dbus,udev,kmod,iproute2,procps,crun,conmon,nftables,ca-certificates,e2fsprogs \
	${1:+--include="$(echo "$*" | tr ' ' ,)"} \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='APT::Sandbox::User "root"' \
	--customize-hook='cd "$1/tmp"; export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
		apt-get download -qq $(apt-cache depends linux-image-cloud-amd64 | sed -n "s/.*Depends: \(linux-image-[0-9].*\)/\1/p")' \
	bookworm "$root" "$sources"

# The kernel alone, without the programs that make an initial RAM disk: what it boots from is built in.
dpkg-deb -x "$root"/tmp/linux-image-*.deb "$out/kernel"
mv "$out"/kernel/boot/vmlinuz-* "$out/vmlinuz"
mv "$out"/kernel/lib/modules "$root/usr/lib/"
chroot "$root" depmod "$(basename "$root"/usr/lib/modules/*)"
rm -rf "$out/kernel" "$root"/tmp/*

echo guest >"$root/etc/hostname"
printf '127.0.0.1 localhost\n127.0.1.1 guest\n' >"$root/etc/hosts"
echo '/dev/nvme0n1 / ext4 rw,noatime 0 1' >"$root/etc/fstab"
: >"$root/etc/machine-id"
printf '[Match]\nName=en*\n[Network]\nDHCP=ipv4\nLinkLocalAddressing=no\n' >"$root/etc/systemd/network/wired.network"
install -D -m 0644 "$agent/agent.sh" "$root/opt/guest/agent.sh"
install -m 0644 "$agent/agent.service" "$root/etc/systemd/system/guest-agent.service"
chroot "$root" systemctl enable --quiet guest-agent.service systemd-networkd.service
# What costs time in an emulated machine and is not looked at.
chroot "$root" systemctl mask --quiet getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer \
	e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer systemd-pstore.service
mkfs.ext4 -q -F -L root -d "$root" "$out/root.ext4" 2G
rm -rf "$root"
