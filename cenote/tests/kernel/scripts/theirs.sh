# How to get at what a pool holds that the kernel module has open: the same functions as for Cenote.
export LC_ALL=C TZ=UTC

attach() { mount -t zfs -o zfsutil "$1" "$2" 2>/dev/null || mount -t zfs -o zfsutil,ro "$1" "$2"; }
detach() { umount "$1"; }
contents() { cat "$(device "$1")"; }
overwrite() {
  local device
  device=$(device "$1") || return
  head -c 307200 /dev/zero | tr '\0' o | dd of="$device" bs=4096 seek=16 conv=notrunc,fsync status=none
  dd if=/dev/zero of="$device" bs=4096 seek=128 count=25 conv=notrunc,fsync status=none
  blkdiscard -o 1048576 -l 307200 "$device"
}

# NAME: the device of a volume, which appears some time after the import.
device() {
  local try device
  for try in $(seq 60); do
    for device in /dev/zd*; do
      case $device in *p[0-9]*) continue ;; esac
      [ "$(zvol_id "$device" 2>/dev/null)" != "$1" ] || { echo "$device"; return; }
    done
    sleep 0.5
  done
  echo "no device of $1" >&2
  return 1
}

# POOL DISK...: what the module says of a pool of ours. It looks at it, scrubs it, changes it, scrubs it again, and looks at what came of it. It looks at pools
# that are imported read-only, because an import that writes takes room and reading changes times. Only who uses how much is asked of pools that are
# open for writing: otherwise the module may wait for a commit that never comes (userspace_many, dmu_objset_upgrade_stop).
judge() {
  local pool=$1 search= disk place=/tmp/at/$1
  shift
  mkdir -p "$place"
  for disk in "$@"; do search="$search -d $disk"; done
  look_at "$pool.before" || return
  zpool import -N $search "$pool" || { tell_why; return 1; }
  observe_accounts "$pool" >> "/tmp/seen/$pool.before"
  # A disk that missed something is brought up to date first.
  zpool wait -t resilver "$pool"
  zpool scrub -w "$pool"
  zpool status -v "$pool"
  zpool status -x "$pool"
  change "$pool" "$place" theirs
  zpool scrub -w "$pool"
  zpool status -v "$pool"
  zpool sync "$pool"
  observe_accounts "$pool" > "/tmp/seen/$pool.after"
  close "$pool" || return
  look_at "$pool.after" || return
  echo "@@ judged $pool"
}

# What the module noted of its last deeds.
tell_why() {
  tail -n 40 /proc/spl/kstat/zfs/dbgmsg
}

# SEEN: adds to this list what is seen of a closed pool. In `judge` only.
look_at() {
  zpool import -N -o readonly=on $search "$pool" || { tell_why; return 1; }
  { observe_properties "$pool"; observe_contents "$pool" "$place"; } >> "/tmp/seen/$1"
  close "$pool"
}

# POOL: exports it. What was unmounted just now may still be in use.
close() {
  local try
  for try in 1 2 3 4 5; do
    zpool export "$1" && return
    sleep 2
  done
  return 1
}

# Waits for the jobs in the background, whose last words are files in /tmp/done: no longer than $1 seconds for $2 of them. Then prints what each has said.
finish() {
  local log end=$(($(date +%s) + $1))
  while [ "$(ls /tmp/done | wc -l)" -lt "$2" ] && [ "$(date +%s)" -lt "$end" ]; do
    sleep 1
  done
  for log in /tmp/log/*; do
    echo "== ${log##*/}"
    cat "$log"
  done
  [ "$(ls /tmp/done | wc -l)" -ge "$2" ] || { echo "@@ jobs are stuck"; ps; dmesg | tail -n 60; }
}

# DISK: puts all that was seen there.
hand_over() {
  local seen
  for seen in /tmp/seen/*; do
    echo "@@ seen ${seen##*/}"
    cat "$seen"
  done | dd of="$1" bs=64k iflag=fullblock conv=fsync,sync status=none
}
