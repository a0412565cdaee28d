# FOLDER CENOTE TEXT TAR: a tar of what the lab needs on a host that has nothing but busybox and OpenZFS's commands. Some text is there to be written too.
set -e
mkdir -p "$1/usr/bin" "$1/usr/share"
strip -o "$1/usr/bin/cenote" "$2"
cp -L "$(command -v fio)" "$1/usr/bin/fio"
cp -r "$3" "$1/usr/share/text"
for program in "$1/usr/bin/cenote" "$1/usr/bin/fio"; do
  for library in $(ldd "$program" | grep -o '/[^ ]*'); do
    [ -e "$1$library" ] || install -D "$library" "$1$library"
  done
done
# Of whole sectors.
tar -C "$1" --blocking-factor=2048 -cf "$4" .
