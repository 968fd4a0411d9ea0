"""System call filters for the kernel's seccomp, assembled here as classic BPF.

https://docs.kernel.org/userspace-api/seccomp_filter.html. Two filters:

``tracing``   an allow-list for the child that runs a model's code: memory, clocks, locks and writing to the pipe that
              it has; it cannot open anything, start anything or signal any process.
``training``  a deny-list for training in a user's environment, which needs files (``landlock.py`` says which): no
              sockets, programs or other processes, nothing of the system's administration, nothing newer than this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable, Sequence

from envolve.llm.vetting.jail.landlock import LIBC, PR_SET_NO_NEW_PRIVS

# Instructions: code, jump if true, jump if false, constant. Jumps count instructions that are skipped.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
Instruction = tuple[int, int, int, int]
NUMBER, MACHINE = 0, 4  # offsets in the kernel's struct seccomp_data; argument i is at 16 + 8 i, low half first
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of CALLS, AUDIT_ARCH
X32 = 0x40000000  # x86_64's second set of numbers for the same calls
SET_MODE_FILTER, ALL_THREADS = 1, 1

# name: (x86_64, aarch64), None where a machine does not have it.
CALLS: dict[str, tuple[int | None, int | None]] = {
    # what computing needs
    "read": (0, 63), "write": (1, 64), "writev": (20, 66), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "brk": (12, 214),
    "madvise": (28, 233), "futex": (202, 98), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "getpid": (39, 172), "gettid": (186, 178),
    "getrandom": (318, 278), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132), "exit": (60, 93), "exit_group": (231, 94), "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123), "getcpu": (309, 168), "getrusage": (98, 165), "restart_syscall": (219, 128),
    "membarrier": (324, 283), "sysinfo": (99, 179), "uname": (63, 160),
    # other machines and processes
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "accept": (43, 202), "accept4": (288, 242), "sendto": (44, 206), "sendmsg": (46, 211), "sendmmsg": (307, 269),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "kill": (62, 129),
    "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_create": (319, 279), "memfd_secret": (447, 447), "setsid": (112, 157),
    "setpgid": (109, 154), "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119), "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    # new programs and processes
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "clone": (56, 220),
    "clone3": (435, 435),
    # the system's administration, and doors into the kernel
    "mount": (165, 40), "umount2": (166, 39), "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "userfaultfd": (323, 282), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264), "fanotify_init": (300, 262), "quotactl": (179, 60), "acct": (163, 89),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "syslog": (103, 116),
    "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "modify_ldt": (154, None), "iopl": (172, None),
    "ioperm": (173, None), "personality": (135, 92), "setuid": (105, 146), "setgid": (106, 144),
    "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147), "setresgid": (119, 149),
    "setgroups": (116, 159), "capset": (126, 91), "vmsplice": (278, 75),
    # what Landlock does not govern: metadata of files, and on old kernels their length
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "truncate": (76, 45), "mknod": (133, None), "mknodat": (259, 33),
    # refused for some of their arguments, or not at all
    "seccomp": (317, 277), "prctl": (157, 167), "ioctl": (16, 29), "setrlimit": (160, 164), "prlimit64": (302, 261),
}  # fmt: skip
NEWEST = 463  # numbers from here on were given to calls after this list was made (Linux 6.13)
COMPUTING = list(CALLS)[: list(CALLS).index("socket")]
BY_ARGUMENTS = ("clone", "clone3", "tgkill", "kill", "seccomp", "prctl", "ioctl", "prlimit64")
DENIED = [name for name in CALLS if name not in (*COMPUTING, *BY_ARGUMENTS)]

CLONE_THREAD = 0x10000
CLONE_NAMESPACES = 0x7E020080  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET, NEWTIME
PUSH_INPUT = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX of ioctl: type into the terminal
PRCTL_DENIED = (1, 4, 35, 0x59616D61)  # SET_PDEATHSIG, SET_DUMPABLE, SET_MM, SET_PTRACER


def tracing() -> list[Instruction]:
    """Filter for the child that runs a model's code."""
    return [*_head(), *_each(COMPUTING, ALLOW), (RETURN, 0, 0, REFUSE)]


def training(processes: bool, signals: bool) -> list[Instruction]:
    """Filter for training in a user's environment. processes: it may fork, but into no new namespace, and run no other
    program. signals: it may call kill, which Landlock restricts."""
    program = [*_head(), (AT_LEAST, 0, 1, NEWEST), (RETURN, 0, 0, UNKNOWN), *_each(DENIED, REFUSE)]
    program += _each(["clone3"], UNKNOWN)  # its flags are out of a filter's sight; glibc falls back on clone
    threads_only = [] if processes else [(ANY_BIT, 1, 0, CLONE_THREAD), (RETURN, 0, 0, REFUSE)]
    program += _of("clone", [_argument(0), *threads_only, (ANY_BIT, 0, 1, CLONE_NAMESPACES), (RETURN, 0, 0, REFUSE)])
    program += _of("tgkill", [_argument(0), (EQUAL, 1, 0, os.getpid()), (RETURN, 0, 0, REFUSE)])  # abort, raise
    if not signals:
        program += _each(["kill"], REFUSE)
    program += _of("prctl", [_argument(0), *_each_value(PRCTL_DENIED)])
    program += _of("ioctl", [_argument(1), *_each_value(PUSH_INPUT)])
    asks_only = [_argument(2), (EQUAL, 1, 0, 0), (RETURN, 0, 0, REFUSE)]  # a null pointer: new limits are not given
    program += _of("prlimit64", [*asks_only, _argument(2, high=True), *asks_only[1:]])
    return [*program, (RETURN, 0, 0, ALLOW)]


def available() -> bool:
    """True if this kernel and machine can enforce a filter."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return False
    action = struct.pack("=I", KILL)  # SECCOMP_GET_ACTION_AVAIL, 2, says whether it knows an action
    return bool(LIBC.syscall(_number("seccomp"), 2, 0, action) == 0)


def install(program: Sequence[Instruction]) -> None:
    """Enforces the filter for good on all threads of this process and on what they start. Raises OSError."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))  # struct sock_fprog
    if LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    result = LIBC.syscall(_number("seccomp"), SET_MODE_FILTER, ALL_THREADS, head)
    if result:  # > 0: the thread that cannot take part
        raise OSError(ctypes.get_errno(), f"seccomp: {os.strerror(ctypes.get_errno()) if result < 0 else 'threads'}")


def _number(name: str) -> int | None:
    column = MACHINES[platform.machine()][0]
    return CALLS[name][column]


def _head() -> list[Instruction]:
    """Instructions that kill calls with another machine's numbers, then load the call's number."""
    column, machine = MACHINES[platform.machine()]
    program = [(LOAD, 0, 0, MACHINE), (EQUAL, 1, 0, machine), (RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    return program + ([(AT_LEAST, 0, 1, X32), (RETURN, 0, 0, KILL)] if column == 0 else [])


def _each(names: Iterable[str], action: int) -> list[Instruction]:
    numbers = [number for number in map(_number, names) if number is not None]
    return [line for number in numbers for line in ((EQUAL, 0, 1, number), (RETURN, 0, 0, action))]


def _of(name: str, body: list[Instruction]) -> list[Instruction]:
    """Instructions ``body`` for one call, which is allowed where the body does not return."""
    return [(EQUAL, 0, len(body) + 1, _number(name) or 0), *body, (RETURN, 0, 0, ALLOW)]


def _argument(i: int, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, 16 + 8 * i + 4 * high)


def _each_value(refused: Sequence[int]) -> list[Instruction]:
    return [line for value in refused for line in ((EQUAL, 0, 1, value), (RETURN, 0, 0, REFUSE))]
