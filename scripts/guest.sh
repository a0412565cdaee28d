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
. "$(dirname "${BASH_SOURCE[0]}")/guest-image.sh"

fail() { echo "${0##*/}: $*" >&2; exit 1; }

guest_begins() {
  needs_tools qemu-system-x86_64 busybox cpio modinfo xz
  packages=$work/image
  root=$work/root
  local kernel
  kernel=$(cloud_kernel)
  unpack "linux-image-$kernel"
  kernel_image=$packages/boot/vmlinuz-$kernel
  modules=$packages/lib/modules/$kernel
  wanted_modules=
  begin_image "$(command -v busybox)"
  echo 'root:x:0:0:root:/:/bin/sh' > "$root/etc/passwd"
  echo 'root:x:0:' > "$root/etc/group"
}

guest_has_modules() {
  local name
  for name in "$@"; do
    add_module "$name"
    wanted_modules="$wanted_modules ${name//-/_}"
  done
}

guest_has_programs() { add_programs "$@"; }

guest_is_done() {
  echo $wanted_modules > "$root/modules/wanted"
  cat > "$root/init" << 'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin LD_LIBRARY_PATH=/lib
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/shm; mount -t tmpfs shm /dev/shm
for name in $(cat /modules/wanted); do need $name || echo "no module $name"; done
ln -sf /proc/self/mounts /etc/mtab
tr -d '\0' < /dev/vda > /job
echo "@@ begin"; sh /job 2>&1; echo "@@ end"
poweroff -f
INIT
  end_image "$work/initrd"
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
