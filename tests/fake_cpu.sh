#!/usr/bin/env bash
# Runs a command on an emulated CPU: for AVX-512 (and its bf16) on a machine that has none.
#
#   tests/fake_cpu.sh [-f FILE]... COMMAND
#   tests/fake_cpu.sh -f build/test_ops_custom 'ONEDNN_MAX_CPU_ISA=ALL TEST=test_bn build/test_ops_custom'
#
# It boots Debian's kernel in Bochs with a RAM disk that holds busybox, the FILEs (files or folders, with the
# libraries they link) at their own paths, and COMMAND, which a shell runs in this directory. Its output and
# exit status are this program's; nothing that it writes is kept. A boot takes some 10 seconds, after which
# the CPU makes about 50 million instructions a second: a hundredth of a real one. There is one CPU.
#
# The emulator is a Bochs of your own, 3.0 or newer, with x86-64, AVX-512, AMX and the display "nogui". (Under
# Debian's 2.7 dtrain found no AVX.) Variables:
#
#   BOCHS      the program, bios/ beside it; must be given
#   CPU        its model; default sapphire_rapids, which has bf16
#   WITHOUT    features to leave out; default amx,amx_int8,amx_bf16, which micro-batches what Zen 4 has
#   KERNEL     a vmlinuz; default: Debian's cloud kernel, downloaded and unpacked once, not installed
#   MEGABYTES  of memory; default 1500
#   LIMIT      seconds until it gives up; default 600
#   APPEND     kernel parameters; default quiet
#
# Needs the packages busybox-static isolinux syslinux-common xorriso cpio.
set -euo pipefail

fail() {
    echo "run.sh: $*" >&2
    exit 2
}
files=()
while getopts f: option; do
    [ "$option" = f ] || fail "see the top of $0"
    files+=("$OPTARG")
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || fail "no command; see the top of $0"
[ -n "${BOCHS:-}" ] || fail "BOCHS must name the emulator; see the top of $0"
for program in "$BOCHS" busybox xorriso cpio; do
    command -v "$program" >/dev/null || fail "no $program; the top of $0 lists what is needed"
done

work=$(mktemp -d)
emulator=
# shellcheck disable=SC2317
clean_up() {
    [ -z "$emulator" ] || kill "$emulator" 2>/dev/null || true
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

kernel=${KERNEL:-}
if [ -z "$kernel" ]; then
    cache=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain-emulated
    if [ ! -d "$cache/boot" ]; then
        package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\).*/\1/p')
        (cd "$work" && apt-get download "$package" >/dev/null && dpkg -x "$package"*.deb image)
        mkdir -p "$cache"
        mv "$work/image/boot" "$cache/boot"
    fi
    kernel=$(echo "$cache"/boot/vmlinuz-*)
fi

# ---- the RAM disk ---------------------------------------------------------------------------------
root=$work/root
mkdir -p "$root"/{bin,proc,sys,dev,tmp,etc,root} "$root/$PWD" "$work/iso/isolinux"
cp "$(command -v busybox)" "$root/bin/busybox"
echo root:x:0:0:root:/root:/bin/sh >"$root/etc/passwd"
add() { # FILE or folder, and what its programs and libraries link
    local path f
    path=$(realpath -s "$1")
    mkdir -p "$root/$(dirname "$path")"
    cp -a --dereference -n "$path" "$root/$path"
    find "$path" -follow -type f \( -name '*.so*' -o -perm -100 \) -exec ldd {} + 2>/dev/null |
        { grep -o '/[^ ]*\.so[^ ]*' || true; } | sort -u | while read -r f; do
        f=${f%:} # the heading of a file
        mkdir -p "$root/$(dirname "$f")"
        cp -n --dereference "$f" "$root/$f"
    done
}
for f in "${files[@]}"; do add "$f"; done
printf '%s\n' "$*" >"$root/command"
cat >"$root/init" <<INIT
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t devpts devpts /dev/pts
ifconfig lo 127.0.0.1 up
hostname emulated
export HOME=/root PATH=/bin:/usr/bin OMP_WAIT_POLICY=passive
stty -F /dev/ttyS0 -onlcr
exec >/dev/ttyS0 2>&1 </dev/null
cd '$PWD'
sh /command
echo "emulated: exit \$?"
sleep 1 # until it is written
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$work/iso/initrd"
cp "$kernel" "$work/iso/kernel"
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 "$work/iso/isolinux/"
# clearcpuid 580: Bochs claims short fast string moves (FSRM), but not the fast ones that the kernel then uses
cat >"$work/iso/isolinux/isolinux.cfg" <<CFG
default linux
prompt 0
label linux
  kernel /kernel
  initrd /initrd
  append ${APPEND:-quiet} console=ttyS0 clearcpuid=580 mitigations=off random.trust_cpu=on panic=-1
CFG
xorriso -as mkisofs -quiet -o "$work/cd.iso" -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot \
    -boot-load-size 4 -boot-info-table "$work/iso" 2>/dev/null

# ---- the machine ----------------------------------------------------------------------------------
share=$(dirname "$(realpath "$(command -v "$BOCHS")")")/bios
without=${WITHOUT-amx,amx_int8,amx_bf16} exclude=
[ -z "$without" ] || exclude=", exclude_features=\"$without\""
cat >"$work/bochsrc" <<RC
megs: ${MEGABYTES:-1500}
romimage: file=$share/BIOS-bochs-latest
vgaromimage: file=$share/VGABIOS-lgpl/VGABIOS-lgpl-latest.bin
cpu: model=${CPU:-sapphire_rapids}, count=1, ips=100000000, reset_on_triple_fault=0, ignore_bad_msrs=1$exclude
clock: sync=none
ata0: enabled=1
ata0-master: type=cdrom, path=$work/cd.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=$work/serial
display_library: nogui
log: $work/log
panic: action=fatal
RC
: >"$work/serial"
(cd "$work" && exec "$BOCHS" -q -f bochsrc >screen 2>&1 </dev/null) &
emulator=$!
end=$((SECONDS + ${LIMIT:-600}))
shown=0
status=
while [ -z "$status" ]; do
    running=
    ! kill -0 $emulator 2>/dev/null || running=yes
    size=$(stat -c %s "$work/serial")
    tail -c +$((shown + 1)) "$work/serial" | head -c $((size - shown))
    shown=$size
    status=$(sed -n 's/^emulated: exit \([0-9]*\).*/\1/p' "$work/serial" | tail -1)
    if [ -z "$running$status" ]; then
        tail -n 20 "$work/screen" "$work/log" >&2
        fail "the emulator ended"
    fi
    if [ $SECONDS -ge $end ]; then
        echo "run.sh: not ready after ${LIMIT:-600} s" >&2
        exit 124
    fi
    sleep 0.5
done
exit "$status"
