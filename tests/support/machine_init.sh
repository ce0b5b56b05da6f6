#!/bin/sh
# The first process of a virtual machine (machines.py). Its root is that of the host, read-only. The
# kernel's command line names the folder of the kernel's files, the job, and `shown`: paths of the
# host that shall be seen even below /run, /tmp or /var/tmp, which are the guest's own.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
exec >/dev/console 2>&1
mkdir /dev/pts /dev/shm
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ln -sf pts/ptmx /dev/ptmx
ln -s /proc/self/fd /dev/fd

# Modules come when the kernel asks for them.
mount -t tmpfs tmpfs /run
mkdir /run/host
mount --bind / /run/host
printf '#!/bin/sh\nexec modprobe -d "/run/host%s" "$@"\n' "$kernel" >/run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
/run/modprobe -a virtio_blk loop overlay erofs

mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t ext4 -o noatime /dev/vda /var/tmp
chmod 1777 /var/tmp
mkswap -q /dev/vdb
swapon /dev/vdb
for path in $(echo "$shown" | tr : ' '); do
    [ -e "$path" ] || {
        mkdir -p "$path"
        mount --bind "/run/host$path" "$path"
    }
done

mount -t cgroup2 cgroup2 /sys/fs/cgroup
hostname guest
ip link set lo up

port() { # port NAME: the device of that virtio-serial port
    for port in /sys/class/virtio-ports/*; do
        [ "$(cat "$port/name")" != "$1" ] || echo "/dev/${port##*/}"
    done
}
setsid sh "$job" </dev/null >"$(port output)" 2>&1
echo $? >"$(port status)"
echo o >/proc/sysrq-trigger
sleep 1000
