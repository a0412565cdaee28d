# Pools that a script makes and that KEEP_POOL, a folder, wants for the kernel module to judge (cenote/tests/kernel). To be sourced: needs $cenote, a folder $work with the image `disk`, and $loop,
# which the script lets go when it ends.

# Creates pool $1 on the image, below $work/mnt.
create_pool() {
  if [ -z "${KEEP_POOL:-}" ]; then
    "$cenote" zpool create -f -R "$work/mnt" "$1" "$work/disk"
    return
  fi
  # A kernel takes a vdev of type disk from a disk only, and one of type file from a file only; there it will be a disk.
  loop=$(losetup --find --show "$work/disk")
  "$cenote" zpool create -f -R "$work/mnt" "$1" "$loop"
  "$cenote" zpool export "$1"
  losetup --detach "$loop"
  loop=
  "$cenote" zpool import -d "$work" -R "$work/mnt" "$1"
}

# Leaves the image of pool $1, which is exported, in KEEP_POOL.
keep_pool() {
  [ -n "${KEEP_POOL:-}" ] || return 0
  mkdir -p "$KEEP_POOL"
  cp --sparse=always "$work/disk" "$KEEP_POOL/$1"
}
