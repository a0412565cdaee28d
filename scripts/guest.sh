# A machine for scripts that try volumes as its disks: QEMU in plain emulation with Debian's cloud kernel, on an initial RAM
# disk of busybox and what is added. To be read by such a script (`. scripts/guest.sh`), which has made the folder $work.
#
#   guest_begins              takes Debian's kernel
#   guest_has_modules NAME…   with what they need; they are loaded in this order
#   guest_has_programs NAME…  with their libraries
#   guest_is_done             makes $work/initrd, beside $kernel_image
#   machine WORDS…            runs the machine with these words for QEMU. What it does is what the script $work/job says, which
#                             is its first disk; what it says goes to $work/console
#   said WORDS, unsaid WORDS  fails unless it said so, or if it did
#
# In the machine, `@@ begin` and `@@ end` frame what the script says.
export PATH="$PATH:/usr/sbin:/sbin"

fail() { echo "${0##*/}: $*" >&2; exit 1; }

needs_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" > /dev/null || { echo "${0##*/}: '$tool' is missing" >&2; exit 2; }
  done
}

# Packages that are unpacked in $work/image, not installed.
unpack() {
  (cd "$work" && apt-get download -q "$@" > /dev/null 2>&1) || fail "no packages $*"
  local package
  for package in "$work"/*.deb; do dpkg -x "$package" "$work/image"; done
  rm -f "$work"/*.deb
}

guest_begins() {
  needs_tools qemu-system-x86_64 busybox cpio modinfo xz
  local kernel
  kernel=$(apt-cache show linux-image-cloud-amd64 | sed -n 's/^Depends: linux-image-\([^ ,]*\).*/\1/p' | head -n 1)
  unpack "linux-image-$kernel"
  kernel_image=$work/image/boot/vmlinuz-$kernel
  modules=$work/image/lib/modules/$kernel
  root=$work/root
  module_order=
  mkdir -p "$root"/{bin,usr/bin,dev,proc,sys,etc,modules,tmp,mnt,run}
  cp "$(command -v busybox)" "$root/bin/busybox"
  echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
  echo 'root:x:0:' > "$root/etc/group"
}

guest_has_modules() {
  local name file needed
  for name in "$@"; do
    case " $module_order " in *" $name "*) continue ;; esac
    file=$(find "$modules" -name "${name//_/[_-]}.ko*" | head -n 1)
    [ -n "$file" ] || continue # built in
    for needed in $(modinfo -F depends "$file" | tr ',-' ' _'); do guest_has_modules "$needed"; done
    case $file in
      *.xz) xz -dc "$file" > "$root/modules/$name.ko" ;;
      *) cp "$file" "$root/modules/$name.ko" ;;
    esac
    module_order="$module_order $name"
  done
}

guest_has_programs() {
  local program file library
  for program in "$@"; do
    file=$(command -v "$program") || file=$(find "$work/image" -type f -path "*bin/$program" | head -n 1)
    [ -n "$file" ] || fail "'$program' is missing"
    cp -L "$file" "$root/usr/bin/"
    for library in $(LD_LIBRARY_PATH="$work/image/usr/lib/x86_64-linux-gnu" ldd "$file" | grep -o '/[^ ]*'); do
      [ -e "$root/lib/$(basename "$library")" ] || install -D "$library" "$root/lib/$(basename "$library")"
    done
  done
  install -D /lib64/ld-linux-x86-64.so.2 "$root/lib64/ld-linux-x86-64.so.2"
}

guest_is_done() {
  echo $module_order > "$root/modules/order"
  cat > "$root/init" << 'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin LD_LIBRARY_PATH=/lib
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
for name in $(cat /modules/order); do insmod /modules/$name.ko || echo "no module $name"; done
ln -sf /proc/self/mounts /etc/mtab
tr -d '\0' < /dev/vda > /job
echo "@@ begin"; sh /job 2>&1; echo "@@ end"
poweroff -f
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet) > "$work/initrd"
}

machine() {
  truncate -s %1M "$work/job"
  : > "$work/console"
  timeout 600 qemu-system-x86_64 -accel tcg -cpu max -m 1G -smp 2 -nodefaults -display none -serial stdio -no-reboot \
    -kernel "$kernel_image" -initrd "$work/initrd" -append "console=ttyS0 quiet panic=-1 no_timer_check" \
    -drive "file=$work/job,format=raw,if=none,id=job" -device virtio-blk-pci,drive=job,addr=4 \
    "$@" > "$work/console" 2> "$work/qemu.log"
}

said() { grep -q "$1" "$work/console" || fail "the machine did not say '$1'"; }
unsaid() { ! grep -q "$1" "$work/console" || fail "the machine said '$1'"; }
