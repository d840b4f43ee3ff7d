#!/bin/sh
# The guest's only program: what an init system sets up, then the tests of the plan, one
# after the other. Ends the guest; its last line says how many failed.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
export KLET_PATIENCE KLET_VM=1 KLET_BIN=@KLET@ RUST_BACKTRACE=0
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t securityfs security /sys/kernel/security
for link in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do
    ln -s "/proc/self/${link#*:}" "/dev/${link%%:*}"
done
mkdir /dev/pts /dev/shm /dev/mqueue
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t mqueue mqueue /dev/mqueue
for dir in /dev/shm /tmp; do mount -t tmpfs -o mode=1777 memory $dir; done
mount -t tmpfs -o mode=755 memory /run
mount --make-rshared /
# Version 2 alone.
mount -t cgroup2 -o nsdelegate cgroup /sys/fs/cgroup
hostname klet-vm
ip link set lo up
# An address that is the node's, though nobody is there to talk to.
ip link add dummy0 type dummy
ip address add 198.51.100.2/24 dev dummy0
ip link set dummy0 up
ip route add default via 198.51.100.1
for module in loop br_netfilter veth; do modprobe $module; done
/lib/systemd/systemd-udevd --daemon
udevadm trigger && udevadm settle

echo "klet-vm: Linux $(uname -r), control groups of version 2: $(cat /sys/fs/cgroup/cgroup.controllers)"
failed=0
while read -r name limit dir program arguments; do
    echo "klet-vm: running $name"
    from=$(cut -d. -f1 /proc/uptime)
    # Without quotes: these are words.
    if (cd "$dir" && exec timeout -k 10 "$limit" "$program" $arguments) </dev/null; then
        word=passed
    else
        word="FAILED ($?)" failed=$((failed + 1))
    fi
    echo "klet-vm: $word $name in $(($(cut -d. -f1 /proc/uptime) - from)) s"
done <@DIR@/plan
echo "klet-vm: end, $failed failed"
# Without writing out: a disk of a failed test may no longer answer.
busybox poweroff -n -f
