#!/usr/bin/env bash
# Process 1 of the namespaces in which one job of scripts/run-zts runs its groups: makes the root that they see.
#
#   namespace.sh WORK JOB
#
# What a case sees: the machine's root with a copy-on-write layer in memory; /dev with the loop devices of this job only; /proc and /run
# of its own; /var/tmp and /tmp on the machine's disk; /zts, which all jobs share (binary, commands, queue, results, logs).
set -euo pipefail
work=$1 job=$2
base=$work/$job
root=$base/root

mount -t tmpfs -o size=3g tmpfs "$root"
mkdir "$root"/{upper,overlay,new}
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/overlay" overlay "$root/new"
new=$root/new

mount -t tmpfs -o mode=755 tmpfs "$new/dev"
for node in null zero full random urandom tty fuse loop-control kmsg; do
  [ ! -e "/dev/$node" ] || cp -a "/dev/$node" "$new/dev/$node"
done
chmod 666 "$new"/dev/{null,zero,full,random,urandom,tty,fuse}
for loop in $(seq "$ZTS_FIRST_LOOP" $((ZTS_FIRST_LOOP + 7))); do
  mknod "$new/dev/loop$loop" b 7 "$loop"
done
ln -s /proc/self/fd "$new/dev/fd"
for number in 0:stdin 1:stdout 2:stderr; do ln -s "fd/${number%%:*}" "$new/dev/${number#*:}"; done
mkdir "$new"/dev/{pts,shm}
mount -t devpts -o newinstance,ptmxmode=666 devpts "$new/dev/pts"
ln -s pts/ptmx "$new/dev/ptmx"
mount -t tmpfs tmpfs "$new/dev/shm"

# The parameters of the module: files with OpenZFS's names that change nothing.
mount --rbind /sys "$new/sys"
modules=$(mktemp -d)
mount -t tmpfs -o mode=755 tmpfs "$modules"
for module in loop fuse kernel nbd; do
  [ -d "/sys/module/$module" ] || continue
  mkdir "$modules/$module"
  mount --rbind "/sys/module/$module" "$modules/$module"
done
python3 "$work/shared/harness/cases.py" parameters "$modules"
mount --move "$modules" "$new/sys/module"

mount -t proc proc "$new/proc"
mount -t tmpfs tmpfs "$new/run"
mkdir -p "$new"/run/{lock,cenote} "$new/old" "$new/zts"
mount --bind "$base/vartmp" "$new/var/tmp"
mount --bind "$base/tmp" "$new/tmp"
mount --bind "$work/shared" "$new/zts"
cd "$new"
pivot_root . old
umount --lazy /old
rmdir /old

# The suite reads kstats from files of the module. There they are made from Cenote's counters when they are read.
mkdir -p /run/kstat
chmod 1777 /run/kstat
sed -i -E 's#"/proc/spl/kstat/zfs/([^"]*)"#"$(kstats "\1")"#; s#/proc/spl/kstat/zfs/arcstats#"$(kstats arcstats)"#' \
  /usr/share/zfs/zfs-tests/include/kstat.shlib /usr/share/zfs/zfs-tests/tests/perf/perf.shlib

# What is shared is in no file of the kernel's NFS server.
sed -i 's#< /etc/exports.d/zfs.exports#<<< "$(exportfs -s)"#' /usr/share/zfs/zfs-tests/include/libtest.shlib

# A machine as the suite expects it: a user of its own, sudo, and `mount -t zfs`, which Cenote's helper answers.
hostname zts-host
echo zts-host >/etc/hostname
echo '127.0.0.1 localhost zts-host' >/etc/hosts
ln -sf /proc/self/mounts /etc/mtab
getent group zts >/dev/null || groupadd zts
id zts >/dev/null 2>&1 || useradd -m -g zts -s /bin/bash zts
mkdir -p /etc/sudoers.d /etc/zfs
printf '%s\n' 'Defaults !secure_path' 'Defaults env_keep += "PATH"' 'zts ALL=(ALL) NOPASSWD: ALL' 'root ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/zts
chmod 440 /etc/sudoers.d/zts
if [ -d /zts/zed ]; then
  rm -rf /etc/zfs/zed.d /usr/lib/zfs-linux/zed.d
  cp -r /zts/zed/etc/zfs/zed.d /etc/zfs/
  cp -r /zts/zed/usr/lib/zfs-linux/zed.d /usr/lib/zfs-linux/
fi
for name in mount.zfs mount.cenote mount.fuse.zfs; do
  rm -f "/sbin/$name"
  ln -s /zts/bin/cenote "/sbin/$name"
done
unset CENOTE_SOCKET
export HOME=/root USER=root LOGNAME=root LC_ALL=C LANG=C
exec bash /zts/harness/job.sh "$job"
