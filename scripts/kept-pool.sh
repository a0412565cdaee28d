# Pools that a script makes, that zdb judges, and that KEEP_POOL, a folder, wants for the kernel module to judge (cenote/tests/kernel). To be sourced: needs $cenote, a folder $work
# with the image `disk`, and $loop, which the script lets go when it ends.

# Creates pool $1 on the image, below $work/mnt, with the options that follow.
create_pool() {
  local pool=$1
  shift
  if [ -z "${KEEP_POOL:-}" ]; then
    "$cenote" zpool create -f -R "$work/mnt" "$@" "$pool" "$work/disk"
    return
  fi
  # A kernel takes a vdev of type disk from a disk only, and one of type file from a file only; there it will be a disk.
  loop=$(losetup --find --show "$work/disk")
  "$cenote" zpool create -f -R "$work/mnt" "$@" "$pool" "$loop"
  "$cenote" zpool export "$pool"
  losetup --detach "$loop"
  loop=
  "$cenote" zpool import -d "$work" -R "$work/mnt" "$pool"
}

# Fails unless zdb finds every block of pool $1, which is exported, right and none leaked, and every object counted.
judge_pool() {
  zdb -e -p "$work" -bcc "$1" >"$work/zdb" 2>&1 && grep -q 'No leaks' "$work/zdb" || { cat "$work/zdb"; echo "zdb -bcc is not content"; return 1; }
  zdb -e -p "$work" -d "$1" >"$work/zdb" 2>&1 || { cat "$work/zdb"; echo "zdb -d is not content"; return 1; }
}

# Leaves the image of pool $1, which is exported, in KEEP_POOL.
keep_pool() {
  [ -n "${KEEP_POOL:-}" ] || return 0
  mkdir -p "$KEEP_POOL"
  cp --sparse=always "$work/disk" "$KEEP_POOL/$1"
}
