#!/bin/sh
# Inside the image, as root, while it is built: Open MPI, sshd and the user of trainings. Packages that are there are
# not fetched, so that a base may bring them.
set -eu
missing=''
for package in openmpi-bin openssh-server openssh-client libnss-extrausers; do
    dpkg-query -W -f='${Status}' $package 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    apt-get update
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $missing
fi
# 31 MB with which hwloc's plugin would read XML; Open MPI has its own reader. Its package stays, so that apt works.
rm -f /usr/lib/*/libicudata.so.*
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /usr/share/doc/* /usr/share/man/* /usr/share/locale/* \
    /var/log/*.log /var/log/apt /etc/ssh/ssh_host_*
# Ubuntu's images have a user 1000
if getent passwd 1000 >/dev/null; then userdel -r "$(getent passwd 1000 | cut -d: -f1)" 2>/dev/null || true; fi
useradd --uid 1000 --create-home --home-dir /opt/mpiuser --shell /bin/bash mpiuser
mkdir -p /data /runs /etc/dtrain /opt/mpiuser/.ssh
chown mpiuser: /opt/mpiuser/.ssh
# any user id of group 0, as OpenShift's, may do what user 1000 may; dtrain-user names it
chown 1000:0 /data /runs
chmod 775 /data /runs
chmod 755 /opt/mpiuser /opt/mpiuser/.ssh
sed -i 's/^passwd:.*/passwd: extrausers files/' /etc/nsswitch.conf
ln -sf /tmp/passwd /var/lib/extrausers/passwd
# the keys of a job are new each time, and its hosts too
cat >/etc/ssh/ssh_config.d/dtrain.conf <<CONF
Port 2222
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
CONF
