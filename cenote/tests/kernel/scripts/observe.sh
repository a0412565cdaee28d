# Everything that can be seen of a pool, as lines that whoever reads it right prints alike. The same words are asked of Cenote and of the kernel module.

# Puts words before each line.
label() { sed "s|^|$1: |"; }

# POOL DIR: all of it. DIR is a place for mounts.
observe() {
  observe_properties "$1"
  observe_accounts "$1"
  observe_contents "$1" "$2"
}

# Leaves out what came with OpenZFS 2.4 and is not in use: a module of 2.3 does not know it.
without_newer() {
  grep -Ev '(^|	)(feature@(block_cloning_endian|dynamic_gang_header|physical_rewrite)	disabled|default(user|group|project)(obj)?quota	0)$'
}

# POOL: its properties and those of its datasets.
observe_properties() {
  local pool=$1 name
  # What is the importer's and not the pool's is left out; and how much is allocated, because the module reads no space maps of a pool that it opens read-only
  # (`zdb` compares them with the blocks).
  zpool get -Hpo property,value all "$pool" |
    grep -Ev '^(altroot|cachefile|load_guid|readonly|compatibility|allocated|free|capacity|fragmentation)	' |
    without_newer | label "pool $pool"
  zfs get -rHpo name,property,value -t filesystem,volume,snapshot,bookmark all "$pool" | without_newer | sort | label property
  for name in $(zfs list -rHo name -t snapshot "$pool"); do
    zfs holds -H "$name" | label hold
  done
}

# POOL: who uses how much of it.
observe_accounts() {
  local pool=$1 name
  for name in $(zfs list -rHo name -t filesystem "$pool"); do
    zfs userspace -Hnpo type,name,used,quota,objused,objquota "$name" | sort | label "user of $name"
    zfs groupspace -Hnpo type,name,used,quota,objused,objquota "$name" | sort | label "group of $name"
    zfs projectspace -Hpo name,used,quota,objused,objquota "$name" | sort | label "project of $name"
  done
}

# POOL DIR: what its filesystems, volumes and snapshots hold.
observe_contents() {
  local pool=$1 dir=$2 name volumes
  volumes=$(zfs list -rHo name -t volume "$pool")
  for name in $(zfs list -rHo name -t filesystem,volume,snapshot "$pool"); do
    if echo "$volumes" | grep -qxF "${name%@*}"; then
      contents "$name" | sha256sum | label "volume $name"
    elif attach "$name" "$dir"; then
      files "$dir" | label "$name"
      detach "$dir"
    else
      echo "$name cannot be mounted"
    fi
  done
}

# DIR: what is below it. A path says that coreutils' own command is meant, not busybox's.
files() (
  cd "$1" || exit
  every() { find . -print0 | sort -z | xargs -r0 "$@"; }
  every /usr/bin/stat -c 'node %N %f %u:%g links %h size %s number %i device %t:%T'
  every /usr/bin/stat -c 'times %n %.9Y %.9Z %.9X'
  every /usr/bin/stat -c 'blocks %n %b'
  find . -type f -print0 | sort -z | xargs -r0 /usr/bin/sha256sum | label bytes
  every getfattr -hd -m - -e hex | awk '/^# file/ { file = $0; next } NF { print "xattr " file " " $0 }'
  find . -type f -print0 | sort -z | xargs -r0 zfs project | label project
  find . -type d -print0 | sort -z | xargs -r0 zfs project -d | label project
)
