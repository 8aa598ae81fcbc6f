#!/bin/sh
# Makes a disk with Debian and its own cloud-init, which a BIOS boots: cloud.sh OUTPUT MIRROR. It has what Debian's images for clouds have for that,
# less what is not used here; its packages are checked by apt as always.
set -eu
out=$1 mirror=$2
root=$out/root
mount=$out/mount
mkdir "$mount"
# The boot loader writes where on the disk its own file is, so that it runs on the disk.
release() {
	for m in dev proc ''; do ! mountpoint -q "$mount/$m" || umount "$mount/$m"; done
}
trap release EXIT
mmdebstrap --mode=root --variant=minbase --skip=cleanup/tmp \
	--include=systemd-sysv,systemd-resolved,dbus,udev,kmod,iproute2,netbase,cloud-init,netplan.io,initramfs-tools,linux-image-cloud-amd64,extlinux,syslinux-common \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--aptopt='Acquire::Languages "none"' --aptopt='Acquire::Retries "3"' --aptopt='APT::Sandbox::User "root"' --aptopt='APT::Install-Recommends "false"' \
	bookworm "$root" "deb $mirror bookworm main"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/tmp/*
echo localhost >"$root/etc/hostname"
echo '/dev/vda / ext4 rw,noatime 0 1' >"$root/etc/fstab"
: >"$root/etc/machine-id"
mkdir "$root/boot/extlinux"
cat >"$root/boot/extlinux/extlinux.conf" <<END
SERIAL 0 115200
DEFAULT linux
LABEL linux
	KERNEL /boot/$(cd "$root/boot" && echo vmlinuz-*)
	INITRD /boot/$(cd "$root/boot" && echo initrd.img-*)
	APPEND root=/dev/vda rw console=ttyS0 quiet
END
chroot "$root" systemctl enable --quiet systemd-networkd.service systemd-resolved.service
# What costs time in an emulated machine and is not looked at.
chroot "$root" systemctl mask --quiet getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer \
	e2scrub_all.timer e2scrub_reap.service fstrim.timer dpkg-db-backup.timer systemd-pstore.service
# The boot loader does not read all that ext4 has.
mkfs.ext4 -q -F -L root -O ^64bit,^metadata_csum -d "$root" "$out/disk.img" 1200M
rm -rf "$root"
mount -o loop "$out/disk.img" "$mount"
mount --bind /dev "$mount/dev"
mount -t proc proc "$mount/proc"
chroot "$mount" extlinux --install /boot/extlinux
release
trap - EXIT
rmdir "$mount"
qemu-img convert -q -c -O qcow2 "$out/disk.img" "$out/disk.qcow2"
rm "$out/disk.img"
