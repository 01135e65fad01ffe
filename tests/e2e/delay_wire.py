"""A cable with a delay between two network namespaces, for kernels without netem: copies packets between two TAP devices.

    delay_wire.py PID DEVICE PID DEVICE MILLISECONDS

The namespaces are those of the two processes. Prints a line when both devices exist, and ends when standard input does."""

import ctypes
import fcntl
import heapq
import os
import select
import struct
import sys
import time

TUNSETIFF, IFF_TAP, IFF_NO_PI, CLONE_NEWNET = 0x400454CA, 0x0002, 0x1000, 0x40000000


def open_tap(pid, name):
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/self/ns/net") as own, open(f"/proc/{pid}/ns/net") as other:
        for ns in (other, own):
            if libc.setns(ns.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            if ns is other:
                fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
                fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def copy(a, b, delay):
    peer, packets, n = {a: b, b: a}, [], 0
    while True:
        wait = max(0, packets[0][0] - time.monotonic()) if packets else None
        ready = select.select([a, b, 0], [], [], wait)[0]
        if 0 in ready and not os.read(0, 1):
            return
        for fd in ready:
            if fd == 0:
                continue
            n += 1
            heapq.heappush(packets, (time.monotonic() + delay, n, peer[fd], os.read(fd, 65536)))
        while packets and packets[0][0] <= time.monotonic():
            _, _, fd, packet = heapq.heappop(packets)
            try:
                os.write(fd, packet)
            except (BlockingIOError, OSError):  # the device is full or not up: the packet is lost
                pass


def main():
    a, b = open_tap(sys.argv[1], sys.argv[2]), open_tap(sys.argv[3], sys.argv[4])
    print("ready", flush=True)
    copy(a, b, float(sys.argv[5]) / 1e3)


main()
