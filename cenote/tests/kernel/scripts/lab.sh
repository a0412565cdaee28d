# A host with a pool that somebody uses, on which the lab measures, and what can be seen of it.
export LC_ALL=C TZ=UTC HOME=/root

# TOOLS DISK...: unpacks the lab and what it needs, plays udev, and makes the pool `tank` on the disks.
prepare() {
  local disk disks=
  mkdir -p /root/seen /dev/shm /var/tmp
  mount -t tmpfs shm /dev/shm
  tar -xf "$1" -C /
  shift
  echo 'zd[0-9]+ 0:0 660 *volume-link' > /etc/mdev.conf
  cat > /bin/volume-link <<'LINK'
#!/bin/sh
case $ACTION in
  add)
    name=$(zvol_id "/dev/$MDEV") || exit 0
    mkdir -p "/dev/zvol/${name%/*}"
    ln -sf "/dev/$MDEV" "/dev/zvol/$name"
    ;;
  remove)
    find /dev/zvol -type l | while read -r link; do
      [ "$(readlink "$link")" != "/dev/$MDEV" ] || rm "$link"
    done
    ;;
esac
LINK
  chmod +x /bin/volume-link
  mdev -d
  # There is little memory.
  echo 134217728 > /sys/module/zfs/parameters/zfs_arc_max
  # `zpool` makes partitions on what is named as a disk is.
  for disk in "$@"; do
    mv "$disk" "/dev/plain-${disk##*/}"
    disks="$disks /dev/plain-${disk##*/}"
  done
  zpool create -O mountpoint=none -o comment='not the lab' tank $disks
  # Who looks at it must not change it.
  zfs create -o compression=zstd -o atime=off -o mountpoint=/srv tank/files
  cp -r /usr/share/text /srv/
  zfs snapshot tank/files@kept
  zfs create -s -V 16M -o org.example:note=kept tank/disk
  until [ -e /dev/zvol/tank/disk ]; do sleep 0.1; done
  head -c 8388608 /dev/urandom > /dev/zvol/tank/disk
  zfs create -o compression=gzip-3 -o org.example:note=mine tank/lab
  zfs create -s -V 1M tank/lab/lab-of-somebody
  cd /root
}

# All that a host's owner can see. Of the pool as a whole not what changes with each group that is committed; of its history not the lab's own volumes.
seen() {
  local name
  sync
  zpool sync tank
  until [ "$(zpool get -Hp -o value freeing tank)" = 0 ]; do sleep 0.2; done
  zpool status -v tank
  zpool get -Hp all tank | grep -vE '^tank	(allocated|free|capacity|fragmentation|freeing)	'
  zfs list -Hp -t all -o name,type,creation,guid,referenced,mounted,mountpoint
  zfs list -Hp -t all -o name,used tank/files tank/disk tank/lab tank/lab/lab-of-somebody
  zfs get -Hp -s local,received,temporary -t all all
  zpool history -l tank | grep -v ' tank/lab/lab-[0-9]'
  for name in tank/disk tank/lab/lab-of-somebody; do sha256sum < "/dev/zvol/$name"; done
  find /srv -exec stat -c '%n %F %s %Y %Z %u %g %a' {} +
  find /srv -type f -exec sha256sum {} +
  find /dev/zvol /sys/block | sort
  cat /proc/mounts
  ls -la /tmp /var/tmp /dev/shm /run | awk '$NF !~ /^\.\.?$/ && $1 != "total" { print $1, $3, $NF }'
  grep -H . /sys/module/zfs/parameters/* 2>/dev/null
  pidof fio cenote zpool zfs
}

# NAME COMMAND...: the host is as it was found when the command has ended.
unchanged() {
  local name=$1
  shift
  seen > "/root/seen/$name.before" 2>&1
  "$@"
  seen > "/root/seen/$name.after" 2>&1
  if cmp -s "/root/seen/$name.before" "/root/seen/$name.after"; then
    echo "@@ unchanged $name: $(wc -l < "/root/seen/$name.before") lines"
  else
    echo "@@ changed by $name:"
    diff -U 0 "/root/seen/$name.before" "/root/seen/$name.after"
  fi
}

# NAME ARGUMENT...: the lab with these arguments. What it says is printed; of its end the code.
lab() {
  local name=$1 began
  shift
  began=$(date +%s)
  cenote lab "$@" > /root/said 2>&1
  echo "@@ $name ended with $? after $(($(date +%s) - began)) seconds"
  cat /root/said
}

# SIGNAL ARGUMENT...: the lab with these arguments gets the signal while fio runs, three volumes or more are there, and some runs have ended.
interrupt() {
  local signal=$1 pid try
  shift
  cenote lab "$@" > /root/said 2>&1 &
  pid=$!
  until [ "$(volumes | wc -l)" -ge 3 ] && pidof fio > /dev/null; do
    kill -0 $pid || break
    sleep 0.2
  done
  kill "-$signal" $pid
  wait $pid
  echo "@@ $signal ended it with $?"
  cat /root/said
  # What it started ends with it.
  for try in $(seq 50); do
    pidof fio cenote > /dev/null || break
    sleep 0.2
  done
  echo "@@ still running: $(pidof fio cenote)"
  echo "@@ volumes left: $(volumes | wc -l)"
  volumes
}

# The volumes that the lab made, and the experiments that they belong to.
volumes() { zfs get -H -d 1 -t volume -s local -o name,value cenote:lab tank/lab; }

# DISK: puts all results there.
hand_over() { tar -cf "$1" -C /root .; }
