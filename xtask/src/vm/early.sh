#!/bin/busybox sh
# The first process of the guest: makes a root of the machine's own files, which stay as
# they are, of Debian's packages beside them, and of memory for what is written.
export PATH=/bin
stop() {
    echo "klet-vm: the guest cannot start: $*"
    poweroff -f
}
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
echo "klet-vm: up"
while read -r module; do
    insmod "/modules/$module" || stop "cannot load $module"
done </modules/order
options=trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro
mount -t 9p -o "$options" machine /machine || stop "cannot mount the machine's files"
mount -t 9p -o "$options" packages /packages || stop "cannot mount the packages"
mount -t tmpfs -o mode=755 memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/packages:/machine,upperdir=/memory/upper,workdir=/memory/work \
    root /root || stop "cannot put them over each other"
umount /proc
mount --move /dev /root/dev
exec switch_root /root @DIR@/late.sh
