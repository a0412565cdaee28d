# What the initial RAM disks of small guests are made of: Debian's cloud kernel, its modules, and programs with their libraries,
# from packages that are unpacked, not installed. To be read by scripts/make-guest and scripts/guest.sh, which have set $packages,
# the folder of what is unpacked, and $root, that of the RAM disk. What fails ends the script.
export PATH="$PATH:/usr/sbin:/sbin"
arch=x86_64-linux-gnu

image_fails() { echo "${0##*/}: $*" >&2; exit 1; }

needs_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" > /dev/null || { echo "${0##*/}: '$tool' is missing" >&2; exit 2; }
  done
}

unpack() {
  local package
  mkdir -p "$packages"
  (cd "$packages" && apt-get download -q "$@" > log 2>&1) || { cat "$packages/log" >&2; image_fails "no packages $*"; }
  for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$packages"; done
  rm -f "$packages"/*.deb "$packages/log"
}

# The version of the kernel that Debian's package for clouds depends on.
cloud_kernel() {
  local kernel
  kernel=$(apt-cache show linux-image-cloud-amd64 | sed -n 's/^Depends: linux-image-\([^ ,]*\).*/\1/p' | head -n 1)
  [ -n "$kernel" ] || image_fails "apt knows no linux-image-cloud-amd64 (apt-get update)"
  echo "$kernel"
}

# Modules of the folder $modules, with what each needs: a file has the names in order of loading, for `need`.
add_module() {
  local name=${1//-/_} file needed all=
  [ ! -e "$root/modules/$name" ] || return 0
  file=$(find "$modules" -name "${name//_/[_-]}.ko*" | head -n 1)
  for needed in $(modinfo -F depends ${file:+"$file"} 2> /dev/null | tr ',-' ' _'); do
    add_module "$needed"
    all="$all $(cat "$root/modules/$needed")"
  done
  # What is built in needs no file.
  case $file in
    '') ;;
    *.xz) xz -dc "$file" > "$root/modules/$name.ko"; all="$all $name" ;;
    *) cp "$file" "$root/modules/$name.ko"; all="$all $name" ;;
  esac
  echo $all > "$root/modules/$name"
}

# Programs with their libraries.
add_programs() {
  local program file library to
  for program in "$@"; do
    file=$(command -v "$program") || file=$(find "$packages" -type f -path "*bin/$program" | head -n 1)
    [ -n "$file" ] || image_fails "'$program' is missing"
    cp -L "$file" "$root/usr/bin/"
    for library in $(LD_LIBRARY_PATH="$packages/usr/lib/$arch:$packages/lib/$arch" ldd "$file" | grep -o '/[^ ]*'); do
      to=/lib/$(basename "$library")
      # The loader is where programs look for it.
      case $library in */ld-linux*) to=$library ;; esac
      [ -e "$root$to" ] || install -D "$library" "$root$to"
    done
  done
}

# The folders of a RAM disk, with busybox (a file) and `need`, which loads modules.
begin_image() {
  mkdir -p "$root"/{bin,usr/bin,dev,proc,sys,etc,modules,tmp,run,mnt}
  cp "$1" "$root/bin/busybox"
  cat > "$root/bin/need" << 'NEED'
#!/bin/sh
# Loads modules, with what they need.
for name in "$@"; do
  for one in $(cat /modules/$name); do
    [ -d /sys/module/$one ] || insmod /modules/$one.ko || exit 1
  done
done
NEED
  chmod +x "$root/bin/need"
}

# The RAM disk as a file.
end_image() {
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet) > "$1"
}
