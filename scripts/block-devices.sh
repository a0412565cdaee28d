# What scripts/try-block-devices runs in its machine.
export CENOTE_SOCKET=/tmp/api.sock
D=/dev/zvol/tank

# NAME COMMAND...: is to succeed.
check() {
  local name=$1
  shift
  if "$@" > /tmp/said 2>&1; then echo "@@ ok $name"; else echo "@@ FAIL $name: $(head -c 500 /tmp/said)"; fi
}
# NAME WORD COMMAND...: is to fail and to say the word.
refused() {
  local name=$1 word=$2
  shift 2
  if ! "$@" > /tmp/said 2>&1 && grep -q -- "$word" /tmp/said; then
    echo "@@ ok $name"
  else
    echo "@@ FAIL $name is not refused: $(head -c 500 /tmp/said)"
  fi
}
part() { echo "@@ -- $* (after $(cut -d. -f1 /proc/uptime) s)"; }
# COMMAND...: until it succeeds.
await() {
  local tries=0
  until "$@" > /dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || return 1
    sleep 0.1
  done
}
begin() {
  cenote serve --socket $CENOTE_SOCKET --cachefile none >> /tmp/log 2>&1 &
  daemon=$!
  await zpool list || echo "@@ FAIL the daemon does not begin: $(tail -n 5 /tmp/log)"
}
end() {
  kill -TERM $daemon
  wait $daemon
}
import() { zpool import -d /tmp tank; }
# DEVICE FILE MEBIBYTES OFFSET: the device holds what the file begins with.
holds() { dd if="$1" bs=1M skip="$4" count="$3" iflag=direct 2> /dev/null | cmp -n $(($3 << 20)) - "$2"; }
# DEVICE FILE: a filesystem on it holds a copy of busybox.
has_copy() {
  mount -t ext4 "$1" /mnt || return 1
  local right=0
  cmp /bin/busybox "/mnt/$2" || right=1
  umount /mnt
  return $right
}
is() { [ "$1" = "$2" ] || { echo "$1 is not $2"; return 1; }; }
size_is() { is "$(cat /sys/block/$(basename "$(readlink $D/$1)")/size)" "$2"; }
no_links() { [ ! -e /dev/zvol/tank ]; }
no_ublk() { ! ls /dev/ublkc* /dev/ublkb* 2> /dev/null; }

truncate -s 1G /tmp/disk
head -c 33554432 /dev/urandom > /tmp/random
begin
check pool zpool create -O mountpoint=none tank /tmp/disk
check volume zfs create -s -V 256M tank/vol
refused 'no module at all' 'modprobe ublk_drv' cenote attach tank/vol
refused 'no ublk' 'modprobe ublk_drv' cenote attach --through ublk tank/vol
refused 'no NBD client' 'modprobe nbd' cenote attach --through nbd tank/vol
insmod /modules/nbd.ko
insmod /modules/ublk_drv.ko

for way in ublk nbd; do
  part "$way: data"
  check "$way: attach" cenote attach --through $way tank/vol
  cat /tmp/said
  node=$(readlink $D/vol)
  queue=/sys/block/$(basename "$node")/queue
  for what in logical_block_size physical_block_size optimal_io_size max_sectors_kb discard_granularity \
    discard_max_bytes write_zeroes_max_bytes write_cache fua; do
    echo "$what $(cat "$queue/$what")"
  done
  check "$way: size" size_is vol 524288
  check "$way: writes" dd if=/tmp/random of="$node" bs=1M oflag=direct
  check "$way: reads" holds "$node" /tmp/random 32 0
  check "$way: small writes" dd if=/tmp/random of="$node" bs=512 seek=65543 count=333 oflag=direct
  check "$way: small reads" sh -c "dd if=$node bs=512 skip=65543 count=333 iflag=direct | cmp -n 170496 - /tmp/random"
  # By its path: the shell prefers its own.
  check "$way: discards" /sbin/blkdiscard -o 1M -l 8M "$node"
  check "$way: discarded" sh -c "dd if=$node bs=1M skip=1 count=8 iflag=direct | tr -d '\\0' | wc -c | grep -qx 0"
  check "$way: zeroes" /sbin/blkdiscard -z -o 16M -l 1M "$node"
  check "$way: zeroed" sh -c "dd if=$node bs=1M skip=16 count=1 iflag=direct | tr -d '\\0' | wc -c | grep -qx 0"
  check "$way: fio" fio --name=v --filename="$node" --rw=randrw --bsrange=4k-64k --size=64M --direct=1 \
    --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --fsync=64

  part "$way: a filesystem"
  check "$way: mkfs" mkfs.ext4 -q -F $D/vol
  check "$way: mount" mount -t ext4 $D/vol /mnt
  check "$way: files" sh -c 'for n in $(seq 50); do cp /bin/busybox /mnt/$n; done; cp /tmp/random /mnt/r; sync'
  check "$way: what they hold" cmp /tmp/random /mnt/r
  refused "$way: detaching what is mounted" 'in use' cenote detach tank/vol
  refused "$way: destroying what is mounted" busy zfs destroy tank/vol
  refused "$way: exporting what is mounted" 'in use' zpool export tank
  check "$way: umount" umount /mnt
  check "$way: fsck" fsck.ext4 -fn $D/vol

  part "$way: sizes and names"
  check "$way: volsize" zfs set volsize=320M tank/vol
  check "$way: new size" size_is vol 655360
  check "$way: rename" zfs rename tank/vol tank/other
  check "$way: old link is gone" test ! -e $D/vol
  check "$way: new link" fsck.ext4 -fn $D/other
  check "$way: back" zfs rename tank/other tank/vol
  check "$way: detach" cenote detach tank/vol
  check "$way: old size" zfs set volsize=256M tank/vol
  check "$way: no links" no_links
done
check 'ublk: nothing is left' no_ublk

part 'properties'
zfs set volmode=dev tank/vol
check 'volmode=dev is by ublk' sh -c "readlink $D/vol | grep ublkb"
refused 'another way' 'through ublk' cenote attach --through nbd tank/vol
mkfs.ext4 -q -F $D/vol
zfs snapshot tank/vol@s
check 'a hidden snapshot' test ! -e $D/vol@s
zfs set snapdev=visible tank/vol
check 'a visible one' fsck.ext4 -fn $D/vol@s
refused 'writing it' '' dd if=/tmp/random of=$D/vol@s bs=1M count=1 oflag=direct
zfs snapshot tank/vol@t
check 'a new one' test -e $D/vol@t
zfs destroy tank/vol@t
check 'a destroyed one' test ! -e $D/vol@t
zfs set snapdev=inherit tank/vol 2> /dev/null || zfs inherit snapdev tank/vol
check 'hidden again' test ! -e $D/vol@s

for way in ublk nbd; do
  part "$way: the end of the daemon"
  zfs create -s -V 64M tank/raw
  zfs create -s -V 64M tank/fs
  check "$way: attach raw" cenote attach --through $way tank/raw
  check "$way: attach fs" cenote attach --through $way tank/fs
  # What the kernel keeps: of a device that nothing has open that is nothing, so this one stays open.
  exec 7<> $D/raw
  dd if=/tmp/random of=$D/raw bs=1M count=16 seek=8 conv=notrunc 2> /dev/null
  mkfs.ext4 -q -F $D/fs
  mount -t ext4 $D/fs /mnt
  cp /bin/busybox /mnt/unsynced
  check "$way: SIGTERM" end
  exec 7>&-
  umount /mnt 2> /dev/null
  check "$way: nothing is left of it" sh -c '! ls /dev/ublkb* /dev/zvol/tank 2> /dev/null'
  begin
  check "$way: import" import
  cenote attach --through $way tank/raw
  cenote attach --through $way tank/fs
  check "$way: a device was flushed" holds $D/raw /tmp/random 16 8
  check "$way: a filesystem was flushed" has_copy $D/fs unsynced

  mount -t ext4 $D/fs /mnt
  cp /bin/busybox /mnt/forced
  check "$way: detach by force" cenote detach -f tank/fs
  umount -l /mnt
  cenote attach --through $way tank/fs
  check "$way: and flushed" has_copy $D/fs forced

  mount -t ext4 $D/fs /mnt
  cp /bin/busybox /mnt/exported
  check "$way: export by force" zpool export -f tank
  umount -l /mnt
  check "$way: import again" import
  cenote attach --through $way tank/fs
  check "$way: and flushed too" has_copy $D/fs exported

  part "$way: kill -9"
  cenote attach --through $way tank/raw
  cp /bin/busybox /tmp/busybox
  mount -t ext4 $D/fs /mnt
  (while cp /tmp/busybox /mnt/killed && sync; do :; done) > /dev/null 2>&1 &
  writer=$!
  sleep 1
  kill -9 $daemon
  wait $daemon 2> /dev/null
  wait $writer 2> /dev/null
  umount -l /mnt
  begin
  check "$way: what it left is gone" await sh -c '! ls /dev/ublkc* /dev/zvol/tank 2> /dev/null'
  check "$way: import after it" import
  cenote attach --through $way tank/fs
  check "$way: fsck after it" sh -c "fsck.ext4 -fy $D/fs; fsck.ext4 -fn $D/fs"
  cenote detach tank/fs
  zfs destroy tank/fs
  zfs destroy tank/raw
done

part 'export'
check export zpool export tank
check 'no links' no_links
check 'no devices' no_ublk
end
check 'all blocks are right' cenote zdb -e -p /tmp -bcc tank
part end
grep -E 'WARN|ERROR' /tmp/log | tail -n 30
