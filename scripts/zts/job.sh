#!/usr/bin/env bash
# One job of scripts/run-zts, inside its namespaces: takes groups from the queue and runs each with OpenZFS's test-runner.py, on three
# loop devices of 4 GiB and one daemon, which is started anew where a group left pools that cannot be destroyed.
set -u
job=$1
export PATH=/zts/path
export STF_TOOLS=/usr/share/zfs/test-runner STF_SUITE=/usr/share/zfs/zfs-tests STF_PATH=$PATH
export FILEDIR=/var/tmp TMPDIR=/var/tmp KEEP=rpool __ZFS_POOL_EXCLUDE=rpool TESTFAIL_CALLBACKS=
export LIBEXEC_DIR=/usr/lib/zfs-linux ZTS_DIR=/usr/share/zfs SCRIPT_DIR=/usr/share/zfs SBIN_DIR=/sbin BIN_DIR=/usr/bin
# Where OpenZFS has it, and what the suite looks into.
export CENOTE_CACHEFILE=/etc/zfs/zpool.cache
export ZDB=$PATH/zdb ZFS=$PATH/zfs ZPOOL=$PATH/zpool
. $STF_SUITE/include/default.cfg
cases=/zts/harness/cases.py
results=/zts/results.$job
logs=/zts/logs
daemon=

start_daemon() {
  rm -f /run/cenote/cenote.sock
  # `sudo` and `su` of a case change its session: the daemon must outlive them. It fetches keys, which the cases' commands would do with
  # this variable.
  SSL_CA_CERT_FILE=/$TESTPOOL/snakeoil.crt setpriv --pdeathsig clear /zts/bin/cenote serve --nfs "127.0.0.1:$((20490 + job))" --parameters /sys/module/zfs/parameters </dev/null >>"$logs/daemon.$job" 2>&1 &
  daemon=$!
  for _ in $(seq 100); do
    if [ -S /run/cenote/cenote.sock ]; then
      # What OpenZFS 2.3 flushes of a dedup log in each group at least, which its cases count on; newer versions, and Cenote, less.
      echo 1000 >/sys/module/zfs/parameters/zfs_dedup_log_flush_entries_min
      return
    fi
    sleep 0.1
  done
  echo "job $job: the daemon does not come" >&2
  exit 1
}
daemon_pid() { ps -eo pid,args | awk '$2 ~ /cenote$/ && $3 == "serve" {print $1; exit}'; }
unmount_matching() { awk "$1 {print \$2}" /proc/self/mounts | tac | while read -r mount; do umount -l "$mount" 2>/dev/null; done; }
# Whoever held a device may hold it for a moment more.
attach() {
  for _ in $(seq 50); do
    losetup "$1" "$2" 2>/dev/null && return
    losetup -d "$1" 2>/dev/null
    sleep 0.2
  done
  echo "job $job: $1 stays in use" >&2
}
detach() { for loop in $(seq "$ZTS_FIRST_LOOP" $((ZTS_FIRST_LOOP + 7))); do losetup -d "/dev/loop$loop" 2>/dev/null; done; }

# Leaves nothing of the group before, and makes the disks of the next.
reset() {
  local pool pid
  for pool in $(timeout 20 zpool list -H -o name 2>/dev/null); do
    timeout 30 zpool destroy -f "$pool" >/dev/null 2>&1 || timeout 30 zpool export -f "$pool" >/dev/null 2>&1
  done
  if ! pool=$(timeout 20 zpool list -H -o name 2>&1) || [ -n "$pool" ]; then
    pid=$(daemon_pid)
    [ -z "$pid" ] || kill -9 "$pid"
    sleep 1
    unmount_matching '$3 ~ /^fuse/'
    start_daemon
  fi
  unmount_matching '$2 ~ /^\/(var\/tmp\/|testpool)/'
  detach
  find /var/tmp -mindepth 1 -maxdepth 1 -exec rm -rf {} + 2>/dev/null
  rm -rf /testpool* /etc/zfs/zpool.cache
  DISKS=
  for disk in 0 1 2; do
    truncate -s 4G "/var/tmp/file-vdev$disk"
    attach "/dev/loop$((ZTS_FIRST_LOOP + disk))" "/var/tmp/file-vdev$disk"
    DISKS="$DISKS loop$((ZTS_FIRST_LOOP + disk))"
  done
  export DISKS="${DISKS# }"
}

# Runs the cases of a run file: GROUP OUT. The results are what the runner prints of each case.
run_cases() {
  local before seconds left
  before=$(daemon_pid)
  # The runner ends a case that hangs; where it hangs itself, the group ends.
  seconds=$((ZTS_LIMIT * ($(grep -o "'[^']*'" "$2/run" | wc -l) + 2)))
  left=$((ZTS_DEADLINE - $(date +%s) + 60))
  timeout -k 5 $((seconds < left ? seconds : left)) python3 $STF_TOOLS/bin/test-runner.py -c "$2/run" -T functional \
    -i $STF_SUITE -o "$2" >"$2/out" 2>&1
  [ $? -lt 124 ] || echo "hangs: $1" >>"$results"
  grep '^Test' "$2/out" >>"$results"
  [ "$before" = "$(daemon_pid)" ] || echo "daemon ended: $1" >>"$results"
}

next_group() {
  flock /zts/queue sh -c 'head -n 1 /zts/queue; sed -i 1d /zts/queue'
}

: >"$results"
start_daemon
while group=$(next_group) && [ -n "$group" ]; do
  if [ "$(date +%s)" -ge "$ZTS_DEADLINE" ]; then
    echo "not begun: $group" >>"$results"
    continue
  fi
  out=$logs/${group//\//_}
  mkdir -p "$out"
  python3 $cases runfile "$group" "$out" $ZTS_LIMIT "$ZTS_CASES" >"$out/run" || continue
  reset
  run_cases "$group" "$out"
  [ -z "$ZTS_ONCE" ] || { echo "$group: done"; continue; }
  # A case that failed after an earlier failure of its group is run again by itself: what is left of the first may be why.
  python3 $cases again "$out/out" | while read -r case; do
    [ "$(date +%s)" -lt "$ZTS_DEADLINE" ] || break
    reset
    alone=$out.alone/$case
    mkdir -p "$alone"
    python3 $cases runfile "$group" "$alone" $ZTS_LIMIT "$case" >"$alone/run" || continue
    run_cases "$group" "$alone" </dev/null
  done
  echo "$group: $(grep -c "/$group/.*\[PASS\]" "$results") results are PASS, setup and cleanup among them"
done
reset
detach
pid=$(daemon_pid)
[ -z "$pid" ] || kill "$pid"
flock /zts/results sh -c "cat $results >>/zts/results"
