# How to get at what a pool holds that Cenote has open. `zpool` and `zfs` are Cenote's; $NBD is the socket of its volumes.
export LC_ALL=C TZ=UTC

# NAME DIR: mounts a filesystem or snapshot.
attach() { zfs mount --at "$2" "$1"; }
# DIR: unmounts it, also what is legacy.
detach() { umount "$1"; }
# NAME: prints the bytes of a volume or of a snapshot of one.
contents() { nbdcopy "nbd+unix:///$1?socket=$NBD" -; }
# NAME: writes into a volume.
overwrite() { qemu-io -f raw -c 'write -P 0x6f 64k 300k' -c 'write -z 512k 100k' -c 'discard 1M 300k' "nbd+unix:///$1?socket=$NBD"; }
