# NAME OPTIONS LAYOUT DISK...: makes a pool, commits something, and leaves more in its intent logs. It is never exported, and what is mounted stays mounted.
crash() {
  local pool=$1 options=$2 layout=$3 place=/tmp/at/$1 disks= disk name
  shift 3
  # `zpool` makes partitions on what is named as a disk is.
  for disk in "$@"; do
    mv "$disk" "/dev/plain-${disk##*/}"
    disks="$disks /dev/plain-${disk##*/}"
  done
  mkdir -p "$place/changes"
  zpool create -O mountpoint=none -O snapdev=visible -o $options "$pool" $layout $disks || return
  zfs create -o compression=zstd -o recordsize=16K "$pool/fs" || return
  zfs create -o xattr=dir -o dnodesize=auto "$pool/dir" || return
  zfs create -s -V 8M -o volblocksize=8K "$pool/volume" || return
  change "$pool" "$place/changes" first
  zpool sync "$pool"
  # From now on no group is committed, unless somebody asks for one.
  echo 3600 > /sys/module/zfs/parameters/zfs_txg_timeout
  zpool sync "$pool"
  # A log that is begun waits for a commit, and so does the last one to close a volume: only what comes after the first words of each log is in it alone.
  sleep 100000 < "$(device "$pool/volume")" &
  for name in fs dir; do
    mkdir -p "$place/$name"
    attach "$pool/$name" "$place/$name"
    : > "$place/$name/log"
  done
  overwrite "$pool/volume"
  sync
  for name in fs dir; do
    change_files "$place/$name" theirs
    # Copies may ask for a commit.
    mkdir "$place/$name/theirs/last"
    printf words > "$place/$name/theirs/last/words"
  done
  overwrite "$pool/volume"
  sync
  for name in fs dir; do files "$place/$name" | label "$pool/$name"; done > "/tmp/seen/$pool"
  contents "$pool/volume" | sha256sum | label "volume $pool/volume" >> "/tmp/seen/$pool"
}
