# Changes of all kinds, by whoever has the pool open. What cannot be done, because a quota or the pool is full, is not done; what came of it is what is compared.

# POOL DIR WHO
change() {
  local pool=$1 dir=$2 who=$3 name snapshot
  for name in $(zfs list -rHo name -t filesystem "$pool"); do
    attach "$name" "$dir" || { echo "$name cannot be mounted"; continue; }
    change_files "$dir" "$who"
    detach "$dir"
  done
  for name in $(zfs list -rHo name -t volume "$pool"); do
    overwrite "$name"
  done
  snapshot=$(zfs list -rHo name -t snapshot "$pool" | head -n 1)
  zfs snapshot -r "$pool@$who"
  if [ -n "$snapshot" ]; then
    zfs clone "$snapshot" "$pool/clone-$who" && zfs promote "$pool/clone-$who"
  fi
  zfs create -o compression=gzip -o mountpoint=none "$pool/new-$who"
  for name in $(zfs list -rHo name -t filesystem,volume "$pool" | grep '/victim'); do
    zfs destroy -r "$name"
  done
}

# DIR WHO
change_files() (
  cd "$1" || exit
  who=$2
  first=$(find . -type f | sort | head -n 1)
  last=$(find . -type f | sort | tail -n 1)
  [ -z "$first" ] || rm -f "$first"
  mkdir -p "$who/a/b"
  head -c 70000 /dev/urandom > "$who/random"
  head -c 300000 /dev/zero | tr '\0' x > "$who/text"
  : > "$who/empty"
  printf tiny > "$who/tiny"
  dd if=/dev/urandom of="$who/sparse" bs=1000 count=3 seek=700 status=none
  ln "$who/tiny" "$who/a/hard"
  ln -s ../tiny "$who/a/soft"
  mkfifo "$who/a/fifo"
  mknod "$who/a/null" c 1 3
  if [ -f "$last" ]; then
    /usr/bin/cp --reflink=auto "$last" "$who/copy"
    printf more >> "$last"
    setfattr -n "user.$who" -v value "$last"
  fi
  setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' v)" "$who/tiny"
  chown 1234:4321 "$who/text"
  chmod 4751 "$who/text"
  mv "$who/random" "$who/a/b/moved"
  truncate -s 10000 "$who/text"
)
