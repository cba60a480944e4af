"""Functions of test_power_cut.sh."""
import fcntl, os, struct

EXT4_IOC_SHUTDOWN, NOLOGFLUSH = 0x8004587D, 2


def cut_power(disk):
    fcntl.ioctl(os.open(disk, os.O_RDONLY), EXT4_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
